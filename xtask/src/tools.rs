//! What the tests need beside Rust: a Python environment, JVM jars and a few Debian packages, under `.test-tools/`.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The checkout's top folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where downloaded test tools live; ignored by git, safe to delete.
pub fn tools_dir() -> PathBuf {
    root().join(".test-tools")
}

/// Runs a command to its end, its output going where ours goes; an error names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// Is a program of this name on the PATH?
pub fn has_program(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// A program that a part of the tests needs, and the Debian package that brings it.
pub struct Needed {
    pub program: &'static str,
    pub package: &'static str,
}

/// Everything the interop tests call that is neither Rust nor Python nor a jar.
pub const PROGRAMS: &[Needed] = &[
    Needed {
        program: "python3",
        package: "python3-venv",
    },
    Needed {
        program: "kcat",
        package: "kcat",
    },
    Needed {
        program: "java",
        package: "default-jdk-headless",
    },
    Needed {
        program: "javac",
        package: "default-jdk-headless",
    },
    Needed {
        program: "mvn",
        package: "maven",
    },
];

/// Installs the missing Debian packages when allowed; returns the programs that are still missing.
pub fn install_programs(may_install: bool) -> Result<Vec<&'static str>> {
    let missing = || PROGRAMS.iter().filter(|n| !has_program(n.program));
    let mut packages: Vec<&str> = missing().map(|n| n.package).collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let command = format!(
        "apt-get install --no-install-recommends -y {}",
        packages.join(" ")
    );
    if may_install {
        println!("installing: {command}");
        let _ = run(Command::new("apt-get").args(["update", "-qq"]));
        if let Err(error) = run(Command::new("apt-get")
            .args(["install", "-qq", "-y", "--no-install-recommends"])
            .args(&packages)
            .env("DEBIAN_FRONTEND", "noninteractive"))
        {
            println!("{error:#}");
        }
    } else {
        println!(
            "some tests need programs that are missing here; get them with\n    {command}\nor run again with --install as root"
        );
    }
    Ok(missing().map(|n| n.program).collect())
}

/// The Python of the tests' own environment, made on first use and brought up to date when its requirements change.
pub fn python() -> Result<PathBuf> {
    let venv = tools_dir().join("venv");
    let python = venv.join("bin/python");
    let requirements = root().join("tests/interop/requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)?;
    let stamp = venv.join("requirements.installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    println!("setting up Python packages");
    std::fs::create_dir_all(tools_dir())?;
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    run(Command::new(&python)
        .args([
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "-r",
        ])
        .arg(&requirements))?;
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}

/// Sets of jars that the tests run, one Maven file each in `tests/jvm/`.
pub const JAR_SETS: &[&str] = &["kafka39", "clients4", "zookeeper"];

/// Brings the jars of every set into `.test-tools/jars/SET/`.
pub fn jars() -> Result<()> {
    for set in JAR_SETS {
        let pom = root().join(format!("tests/jvm/{set}.pom.xml"));
        let folder = tools_dir().join("jars").join(set);
        let wanted = std::fs::read_to_string(&pom)?;
        let stamp = folder.join("pom.installed");
        if std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
            continue;
        }
        println!("fetching jars: {set}");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        run(Command::new("mvn")
            .args(["-q", "-B", "-f"])
            .arg(&pom)
            .arg("dependency:copy-dependencies")
            .arg(format!(
                "-DoutputDirectory={}",
                folder.canonicalize()?.display()
            ))
            .stdin(Stdio::null()))?;
        std::fs::write(&stamp, wanted)?;
    }
    Ok(())
}
