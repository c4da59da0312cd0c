//! The `tollgate` command as a process.

use std::{
    fs,
    io::BufRead,
    net::SocketAddr,
    process::{Command, ExitStatus},
};

use tempfile::TempDir;

use super::Process;

/// The command with no settings but those that a test gives it.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).env_clear();
    command
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<(ExitStatus, String, String)> for Output {
    fn from((status, stdout, stderr): (ExitStatus, String, String)) -> Self {
        Self { status: status.code(), stdout, stderr }
    }
}

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Process::start(command(arguments), None).expect("the command starts").wait().into()
}

/// `tollgate serve` as a process, on free ports. Dropping it kills it.
pub(crate) struct ServeProcess {
    process: Process,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    _directory: TempDir,
}

impl ServeProcess {
    /// Starts a server with this configuration, and waits until it listens.
    pub(crate) fn start(config: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("tollgate-serve-").tempdir().expect("a directory");
        let file = directory.path().join("tollgate.toml");
        fs::write(&file, config).expect("the directory can be written");
        let admin = SocketAddr::from(([127, 0, 0, 1], super::free_port()));
        let arguments = [
            ["--config", file.to_str().expect("a path in UTF-8")],
            ["--listen", "127.0.0.1:0"],
            ["--admin", &admin.to_string()],
        ];
        let mut serve = vec!["serve"];
        serve.extend(arguments.as_flattened());
        let mut process = Process::start(command(&serve), Some(directory.path())).expect("the server starts");
        let mut line = String::new();
        process.stdout().read_line(&mut line).expect("its output can be read");
        let address = line.trim_end().strip_prefix("listening on ").and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let (status, _, errors) = process.wait();
            panic!("`{}` printed {line:?} and ended with {status}: {errors}", serve.join(" "));
        };
        Self { process, address, admin, _directory: directory }
    }

    /// Sends a signal by its name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for its end.
    pub(crate) fn wait(self) -> Output {
        self.process.wait().into()
    }
}
