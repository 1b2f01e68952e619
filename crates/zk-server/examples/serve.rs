//! Serves a zoo.cfg by hand: `cargo run -p gracchus-zk-server --example serve -- zoo.cfg`.

use gracchus_zk_server::{ZkConfig, run};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let path = std::env::args()
        .nth(1)
        .ok_or("give the path of a zoo.cfg")?;
    let config = ZkConfig::from_file(path)?;
    run(config, async {
        let _ = tokio::signal::ctrl_c().await;
    })
    .await?;
    Ok(())
}
