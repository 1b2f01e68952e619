//! Configs and their notices.

use crate::rig::fresh;
use gracchus_registry::RegistryError;
use gracchus_registry::entity::ConfigEntity;
use gracchus_registry::json::*;

#[tokio::test]
async fn configs_need_a_controller_and_leave_notices() {
    let (registry, _events, _) = fresh("configs").await;
    registry.create_paths_at_start().await.unwrap();
    let topic = ConfigEntity::Topic("t".into());
    let some = ConfigZnode {
        config: [("retention.ms".to_string(), "5".to_string())]
            .into_iter()
            .collect(),
    };
    assert_eq!(
        registry.set_config(&topic, &some).await,
        Err(RegistryError::NoController)
    );
    registry.elect(1, 5).await.unwrap();
    registry.set_config(&topic, &some).await.unwrap();
    registry
        .set_config(&topic, &ConfigZnode::default())
        .await
        .unwrap();
    assert_eq!(
        registry
            .zk()
            .get_data("/config/topics/t", false)
            .await
            .unwrap()
            .0
            .as_deref(),
        Some(&br#"{"version":1,"config":{}}"#[..])
    );
    let user = ConfigEntity::UserClient {
        user: Some("CN=bob/x".into()),
        client: None,
    };
    registry.set_config(&user, &some).await.unwrap();
    assert_eq!(registry.config(&user).await.unwrap(), some);
    assert!(
        registry
            .config_entities("users")
            .await
            .unwrap()
            .contains(&user)
    );
    registry
        .set_config(&ConfigEntity::User(Some("CN=bob/x".into())), &some)
        .await
        .unwrap();
    registry
        .set_config(
            &ConfigEntity::User(Some("CN=bob/x".into())),
            &ConfigZnode::default(),
        )
        .await
        .unwrap();
    assert_eq!(
        registry.config_entities("users").await.unwrap().len(),
        2,
        "the client keeps its user's node"
    );
    registry
        .set_config(&user, &ConfigZnode::default())
        .await
        .unwrap();
    assert_eq!(registry.config_entities("users").await.unwrap(), []);

    let notices = registry.config_change_names(true).await.unwrap();
    assert_eq!(
        notices
            .iter()
            .map(|(number, _)| *number)
            .collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5]
    );
    assert_eq!(
        registry
            .config_change(&notices[2].1)
            .await
            .unwrap()
            .unwrap()
            .0,
        Some(user)
    );
    let names: Vec<String> = notices.into_iter().map(|(_, name)| name).collect();
    registry
        .purge_config_changes(&names, i64::MAX)
        .await
        .unwrap();
    assert_eq!(registry.config_change_names(false).await.unwrap(), []);
    assert_eq!(registry.config_change(&names[0]).await.unwrap(), None);
    registry.zk().close().await;
}
