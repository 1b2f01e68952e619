//! The four-letter words: a question in four bytes, an answer in text, and the connection is closed.

use super::conn::Conn;
use crate::metrics::{java_double, mntr, round4};
use crate::state::{Clock, Shared};
use crate::tree::DataTree;
use crate::watch::ConnId;
use gracchus_zk_proto::OpCode;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// ZooKeeper's version, in the shape that clients parse.
pub const VERSION: &str = concat!(
    "3.9.5-gracchus-",
    env!("CARGO_PKG_VERSION"),
    ", built on 2026-12-01 00:00 UTC"
);

const WORDS: &[&str] = &[
    "ruok", "srvr", "stat", "mntr", "conf", "cons", "dump", "envi", "wchs", "wchc", "wchp", "dirs",
    "isro", "crst", "srst", "gtmk", "stmk", "hash",
];
/// Its question has eight more bytes: the mask to set.
const SET_TRACE_MASK: &[u8] = b"stmk";

/// How long a question is that starts with these four bytes; anything else is a length.
pub(crate) fn question_len(bytes: &[u8]) -> Option<usize> {
    let known = WORDS.iter().any(|word| word.as_bytes() == bytes);
    known.then_some(if bytes == SET_TRACE_MASK { 12 } else { 4 })
}

pub(crate) fn answer(shared: &Shared, conn: &Conn, question: &[u8]) -> String {
    let (word, argument) = question.split_at_checked(4).unwrap_or((question, &[]));
    let word = &*String::from_utf8_lossy(word);
    if !shared.config.whitelist.allows(word, conn.peer.ip()) {
        return format!("{word} is not executed because it is not in the whitelist.\n");
    }
    match word {
        "ruok" => "imok".into(),
        "isro" => "rw".into(),
        "gtmk" => shared.trace_mask.load(Relaxed).to_string(),
        // Kept for who asks: what is logged goes by the level of the log.
        "stmk" => {
            let mask = argument
                .first_chunk()
                .map_or(0, |mask| i64::from_be_bytes(*mask));
            shared.trace_mask.store(mask, Relaxed);
            mask.to_string()
        }
        "srst" => {
            shared.metrics.reset();
            "Server stats reset.\n".into()
        }
        "crst" => {
            for conn in connections(shared) {
                conn.stats.received.store(0, Relaxed);
                conn.stats.sent.store(0, Relaxed);
                conn.stats.latency.reset();
            }
            "Connection stats reset.\n".into()
        }
        "srvr" => format!("{}{}", version_line(), server(shared)),
        "stat" => {
            let mut out = format!("{}Clients:\n", version_line());
            for conn in connections(shared) {
                let _ = writeln!(out, "{}", brief(&conn));
            }
            format!("{out}\n{}", server(shared))
        }
        "mntr" => mntr(VERSION, &shared.metrics, &shared.gauges()),
        "conf" => conf(shared),
        "cons" => {
            let mut out = String::new();
            for conn in connections(shared) {
                let _ = writeln!(out, "{}", full(&conn));
            }
            out + "\n"
        }
        "dump" => dump(shared),
        "envi" => envi(),
        "dirs" => format!(
            "datadir_size: {}\nlogdir_size: {}\n",
            size_of(&shared.config.snap_dir()),
            size_of(&shared.config.log_dir())
        ),
        "wchs" => {
            let (conns, paths, total) = shared.watches.lock().summary();
            format!("{conns} connections watching {paths} paths\nTotal watches:{total}\n")
        }
        "wchc" => watches_by_session(shared),
        "wchp" => watches_by_path(shared),
        _ => String::new(),
    }
}

fn version_line() -> String {
    format!("Zookeeper version: {VERSION}\n")
}

fn server(shared: &Shared) -> String {
    let metrics = &shared.metrics;
    let latency = &metrics.latency;
    let (zxid, nodes) = {
        let tree = shared.tree.read();
        (tree.last_zxid(), tree.node_count() + 1)
    };
    format!(
        "Latency min/avg/max: {}/{}/{}\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: {}\nZxid: 0x{zxid:x}\nMode: standalone\nNode count: {nodes}\n",
        latency.min_ms(),
        java_double(round4(latency.average_ms())),
        latency.max_ms(),
        metrics.packets_received.load(Relaxed),
        metrics.packets_sent.load(Relaxed),
        shared.conns.lock().len(),
        shared.queue.outstanding.load(Relaxed),
    )
}

fn connections(shared: &Shared) -> Vec<Arc<Conn>> {
    let mut conns: Vec<_> = shared.conns.lock().values().cloned().collect();
    conns.sort_by_key(|conn| conn.id);
    conns
}

/// Whether the connection is read at present, and its figures.
fn head(conn: &Conn) -> String {
    let reading = u8::from(conn.session() != 0);
    format!(
        " /{}[{reading}](queued={},recved={},sent={}",
        conn.peer,
        conn.pending.load(Relaxed),
        conn.stats.received.load(Relaxed),
        conn.stats.sent.load(Relaxed)
    )
}

fn brief(conn: &Conn) -> String {
    head(conn) + ")"
}

fn full(conn: &Conn) -> String {
    let session = conn.session();
    if session == 0 {
        return brief(conn);
    }
    let stats = &conn.stats;
    let mut out = head(conn);
    let op = stats.last_op.load(Relaxed);
    let _ = write!(
        out,
        ",sid=0x{session:x},lop={},est={},to={}",
        short_name(op),
        stats.established_ms,
        conn.timeout_ms.load(Relaxed)
    );
    let xid = stats.last_xid.load(Relaxed);
    if xid >= 0 {
        let _ = write!(out, ",lcxid=0x{xid:x}");
    }
    let latency = &stats.latency;
    let _ = write!(
        out,
        ",lzxid=0x{:x},lresp={},llat={},minlat={},avglat={},maxlat={})",
        stats.last_zxid.load(Relaxed),
        stats.last_response_ms.load(Relaxed),
        stats.last_latency_ms.load(Relaxed),
        latency.min_ms(),
        latency.average_ms() as u64,
        latency.max_ms()
    );
    out
}

/// An operation as cons abbreviates it.
fn short_name(op: i32) -> &'static str {
    use OpCode::*;
    match OpCode::from_code(op) {
        Some(Notification) => "SESS",
        Some(Create | Create2 | CreateContainer | CreateTtl) => "CREA",
        Some(Delete | DeleteContainer) => "DELE",
        Some(Exists) => "EXIS",
        Some(GetData) => "GETD",
        Some(SetData) => "SETD",
        Some(GetAcl) => "GETA",
        Some(SetAcl) => "SETA",
        Some(GetChildren | GetChildren2) => "GETC",
        Some(Sync) => "SYNC",
        Some(Ping) => "PING",
        Some(Check) => "CHEC",
        Some(Multi) => "MULT",
        Some(MultiRead) => "MURE",
        Some(Auth) => "AUTH",
        Some(SetWatches | SetWatches2) => "SETW",
        Some(AddWatch) => "ADDW",
        Some(CheckWatches) => "CHKW",
        Some(RemoveWatches) => "REMW",
        Some(WhoAmI) => "WHOA",
        Some(CreateSession) => "SESS",
        Some(CloseSession) => "CLOS",
        Some(GetEphemerals) => "GETE",
        Some(GetAllChildrenNumber) => "GACN",
        _ => "NA",
    }
}

fn conf(shared: &Shared) -> String {
    let port = |address: Option<std::net::SocketAddr>| {
        address.map_or(-1, |address| i32::from(address.port()))
    };
    let c = &shared.config;
    let (data, log) = (c.snap_dir(), c.log_dir());
    format!(
        "clientPort={}\nsecureClientPort={}\ndataDir={}\ndataDirSize={}\ndataLogDir={}\ndataLogSize={}\ntickTime={}\nmaxClientCnxns={}\nminSessionTimeout={}\nmaxSessionTimeout={}\nclientPortListenBacklog={}\nserverId=0\n",
        port(c.serves_plain.then_some(c.client_address)),
        port(c.secure_address),
        data.display(),
        size_of(&data),
        log.display(),
        size_of(&log),
        c.tick_time_ms,
        c.max_client_connections,
        c.min_timeout_ms(),
        c.max_timeout_ms(),
        c.listen_backlog.unwrap_or(-1),
    )
}

fn size_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|found| found.len())
        .sum()
}

fn dump(shared: &Shared) -> String {
    let offset = Clock::wall_ms() - shared.clock.now_ms();
    let (by_deadline, total) = {
        let sessions = shared.sessions.lock();
        (sessions.by_deadline(), sessions.len())
    };
    let mut out = format!(
        "SessionTracker dump:\nSession Sets ({})/({total}):\n",
        by_deadline.len()
    );
    for (due_ms, ids) in by_deadline {
        let _ = writeln!(
            out,
            "{} expire at {}:",
            ids.len(),
            java_date(due_ms + offset)
        );
        for id in ids {
            let _ = writeln!(out, "\t0x{id:x}");
        }
    }
    out += "ephemeral nodes dump:\n";
    out += &ephemerals(&shared.tree.read());
    let conns = connections(shared);
    let mut sets: BTreeMap<i64, Vec<&Arc<Conn>>> = BTreeMap::new();
    for conn in &conns {
        let heard = conn.last_heard.get().map_or(0, |heard| heard.load(Relaxed));
        let due = heard + i64::from(conn.timeout_ms.load(Relaxed));
        let tick = i64::from(shared.config.tick_time_ms.max(1));
        sets.entry((due / tick + 1) * tick).or_default().push(conn);
    }
    let _ = writeln!(
        out,
        "Connections dump:\nConnections Sets ({})/({}):",
        sets.len(),
        conns.len()
    );
    for (due_ms, conns) in sets {
        let _ = writeln!(
            out,
            "{} expire at {}:",
            conns.len(),
            java_date(due_ms + offset)
        );
        for conn in conns {
            let _ = writeln!(
                out,
                "\tip: /{} sessionId: 0x{:x}",
                conn.peer,
                conn.session()
            );
        }
    }
    out
}

fn ephemerals(tree: &DataTree) -> String {
    let owners: BTreeMap<i64, Vec<String>> = tree
        .ephemerals()
        .map(|(session, paths)| {
            let mut paths: Vec<String> = paths.map(|path| path.to_string()).collect();
            paths.sort();
            (session, paths)
        })
        .collect();
    let mut out = format!("Sessions with Ephemerals ({}):\n", owners.len());
    for (session, paths) in owners {
        let _ = writeln!(out, "0x{session:x}:");
        for path in paths {
            let _ = writeln!(out, "\t{path}");
        }
    }
    out
}

fn watches_by_session(shared: &Shared) -> String {
    let found: Vec<(ConnId, Vec<String>)> = {
        let watches = shared.watches.lock();
        watches
            .by_conn()
            .map(|(conn, paths)| (conn, paths.map(|path| path.to_string()).collect()))
            .collect()
    };
    let conns = shared.conns.lock();
    let mut by_session: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for (conn, paths) in found {
        if let Some(conn) = conns.get(&conn) {
            by_session.entry(conn.session()).or_default().extend(paths);
        }
    }
    let mut out = String::new();
    for (session, mut paths) in by_session {
        paths.sort();
        let _ = writeln!(out, "0x{session:x}");
        for path in paths {
            let _ = writeln!(out, "\t{path}");
        }
    }
    out + "\n"
}

fn watches_by_path(shared: &Shared) -> String {
    let found: BTreeMap<String, Vec<ConnId>> = {
        let watches = shared.watches.lock();
        watches
            .by_path()
            .map(|(path, conns)| (path.to_string(), conns.collect()))
            .collect()
    };
    let conns = shared.conns.lock();
    let mut out = String::new();
    for (path, ids) in found {
        let _ = writeln!(out, "{path}");
        let mut sessions: Vec<i64> = ids
            .iter()
            .filter_map(|id| conns.get(id))
            .map(|conn| conn.session())
            .collect();
        sessions.sort();
        for session in sessions {
            let _ = writeln!(out, "\t0x{session:x}");
        }
    }
    out + "\n"
}

fn envi() -> String {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let directory = std::env::current_dir().unwrap_or_default();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        other => other,
    };
    let program = std::env::current_exe().unwrap_or_default();
    let memory = |name: &str| {
        let text = read("/proc/meminfo");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kb = line.and_then(|line| line.trim_matches([':', ' ', 'k', 'B']).parse::<u64>().ok());
        kb.unwrap_or_default() / 1024
    };
    let lines: [(&str, String); 18] = [
        ("zookeeper.version", VERSION.into()),
        ("host.name", read("/proc/sys/kernel/hostname")),
        // There is no JVM: its keys say so, or what takes its place.
        ("java.version", "none".into()),
        ("java.vendor", "gracchus".into()),
        ("java.home", String::new()),
        ("java.class.path", program.display().to_string()),
        ("java.library.path", String::new()),
        ("java.io.tmpdir", std::env::temp_dir().display().to_string()),
        ("java.compiler", "<NA>".into()),
        ("os.name", "Linux".into()),
        ("os.arch", arch.into()),
        ("os.version", read("/proc/sys/kernel/osrelease")),
        ("user.name", variable("USER")),
        ("user.home", variable("HOME")),
        ("user.dir", directory.display().to_string()),
        ("os.memory.free", format!("{}MB", memory("MemAvailable"))),
        ("os.memory.max", format!("{}MB", memory("MemTotal"))),
        ("os.memory.total", format!("{}MB", memory("MemTotal"))),
    ];
    let mut out = String::from("Environment:\n");
    for (key, value) in lines {
        let _ = writeln!(out, "{key}={value}");
    }
    out
}

/// A time as Java's `Date` prints it, in UTC.
fn java_date(ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let seconds = ms.div_euclid(1000);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let name =
        |names: &[&'static str], at: i64| names.get(at as usize).copied().unwrap_or_default();
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02} UTC {year}",
        name(&DAYS, days.rem_euclid(7)),
        name(&MONTHS, month - 1),
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Year, month and day of a day since 1970 (proleptic Gregorian calendar, counted in 400-year eras from 1 March of year 0).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_java_prints_them() {
        assert_eq!(java_date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(java_date(1_796_078_273_000), "Mon Nov 30 22:37:53 UTC 2026");
        assert_eq!(java_date(951_782_400_000), "Tue Feb 29 00:00:00 UTC 2000");
    }
}
