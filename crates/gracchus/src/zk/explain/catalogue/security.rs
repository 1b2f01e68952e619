//! Access rules and delegation tokens.

use super::{Entry, KIND, NOBODY, folder};

const ACL_FIELDS: &[(&str, &str)] = &[
    ("version", "of this format: 1"),
    (
        "acls",
        "a list of {principal, permissionType (Allow, Deny), host, operation}",
    ),
];

pub(super) const ENTRIES: &[Entry] = &[
    folder("/kafka-acl", "access rules on literal names", NOBODY),
    folder(
        "/kafka-acl/{type}",
        "access rules on one type of resource",
        NOBODY,
    ),
    Entry {
        path: "/kafka-acl/{type}/{name}",
        what: "the access rules on one resource; the name * means all of the type",
        kind: "persistent, JSON",
        written: "by the authorizer of the broker that serves the request, or the ACL tool, expecting the version read; deleted with its last rule",
        watched: "by nobody: brokers reread it when a notice in /kafka-acl-changes names it",
        stat: "",
        warning: "a broker with AclAuthorizer does not start over content that it cannot read",
        fields: ACL_FIELDS,
    },
    folder(
        "/kafka-acl-changes",
        "parent of notices that rules on literal names changed",
        "by every broker with AclAuthorizer (children)",
    ),
    Entry {
        path: "/kafka-acl-changes/acl_changes_{number}",
        what: "a notice that the rules on a resource changed",
        kind: "persistent sequential, text",
        written: "by whoever changed the rules; deleted by any broker once it is 15 minutes old",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[(KIND, "TYPE:name, as TOPIC:orders")],
    },
    folder("/kafka-acl-extended", "access rules on patterns", NOBODY),
    folder(
        "/kafka-acl-extended/{pattern}",
        "access rules on one kind of pattern (prefixed)",
        NOBODY,
    ),
    folder(
        "/kafka-acl-extended/{pattern}/{type}",
        "access rules on one type of resource by pattern",
        NOBODY,
    ),
    Entry {
        path: "/kafka-acl-extended/{pattern}/{type}/{name}",
        what: "the access rules on all resources whose name starts so",
        kind: "persistent, JSON",
        written: "as /kafka-acl/{type}/{name}",
        watched: "by nobody: brokers reread it when a notice in /kafka-acl-extended-changes names it",
        stat: "",
        warning: "a broker with AclAuthorizer does not start over content that it cannot read",
        fields: ACL_FIELDS,
    },
    folder(
        "/kafka-acl-extended-changes",
        "parent of notices that rules on patterns changed",
        "by every broker with AclAuthorizer (children)",
    ),
    Entry {
        path: "/kafka-acl-extended-changes/acl_changes_{number}",
        what: "a notice that the rules on a pattern changed",
        kind: "persistent sequential, JSON",
        written: "by whoever changed the rules; deleted by any broker once it is 15 minutes old",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 1"),
            (
                "resourceType",
                "TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER",
            ),
            ("name", "the pattern"),
            ("patternType", "PREFIXED"),
        ],
    },
    folder("/delegation_token", "delegation tokens", NOBODY),
    folder("/delegation_token/tokens", "a child for each token", NOBODY),
    Entry {
        path: "/delegation_token/tokens/{id}",
        what: "a delegation token; its HMAC is not stored, brokers compute it from delegation.token.secret.key",
        kind: "persistent, JSON",
        written: "by the broker that serves the request; deleted by the controller when it has expired",
        watched: "by nobody: brokers reread it when a notice in /delegation_token/token_changes names it",
        stat: "",
        warning: "",
        fields: &[
            ("version", "of this format: 3 (1 and 2 lack tokenRequester)"),
            ("owner", "the principal, URL-encoded"),
            ("tokenRequester", "who asked for it"),
            ("renewers", "principals who may renew it"),
            ("issueTimestamp", "ms since 1970"),
            ("expiryTimestamp", "when it expires unless renewed, ms"),
            ("maxTimestamp", "when it expires for good, ms"),
            ("tokenId", "the id in the path"),
        ],
    },
    folder(
        "/delegation_token/token_changes",
        "parent of notices that a token changed",
        "by every broker with delegation tokens (children)",
    ),
    Entry {
        path: "/delegation_token/token_changes/token_change_{number}",
        what: "a notice that a token changed",
        kind: "persistent sequential, text",
        written: "by the broker that changed it; deleted by any broker once it is 15 minutes old",
        watched: "through its parent",
        stat: "",
        warning: "",
        fields: &[(KIND, "the token's id")],
    },
];
