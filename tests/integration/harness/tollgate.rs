//! The `tollgate` command as a process.

use std::{
    fs,
    io::BufRead,
    net::SocketAddr,
    process::{Command, ExitStatus},
};

use tempfile::TempDir;

use super::{Process, eventually};

/// The name of a server's configuration in its directory.
const CONFIG: &str = "tollgate.toml";

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
    directory: TempDir,
}

impl ServeProcess {
    /// Starts a server with this configuration, and waits until it listens.
    pub(crate) fn start(config: &str) -> Self {
        let admin = SocketAddr::from(([127, 0, 0, 1], super::free_port()));
        Self::start_at(config, SocketAddr::from(([127, 0, 0, 1], 0)), admin)
    }

    fn start_at(config: &str, listen: SocketAddr, admin: SocketAddr) -> Self {
        let directory = tempfile::Builder::new().prefix("tollgate-serve-").tempdir().expect("a directory");
        let file = directory.path().join(CONFIG);
        fs::write(&file, config).expect("the directory can be written");
        let (file, listen, admin_text) = (file.display().to_string(), listen.to_string(), admin.to_string());
        let serve = command(&["serve", "--config", &file, "--listen", &listen, "--admin", &admin_text]);
        let mut process = Process::start(serve, Some(directory.path())).expect("the server starts");
        let mut line = String::new();
        process.stdout().read_line(&mut line).expect("its output can be read");
        let address = line.trim_end().strip_prefix("listening on ").and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let (status, _, errors) = process.wait();
            panic!("`tollgate serve` printed {line:?} and ended with {status}: {errors}");
        };
        Self { process, address, admin, directory }
    }

    /// Waits for its end and starts it anew at the addresses that it had.
    pub(crate) fn restart(&mut self, config: &str) {
        eventually("the server has ended", || self.process.has_exited());
        *self = Self::start_at(config, self.address, self.admin);
    }

    /// Replaces its configuration in one step, as an operator's tools do.
    pub(crate) fn configure(&self, config: &str) {
        let next = self.directory.path().join("next.toml");
        fs::write(&next, config).expect("the directory can be written");
        fs::rename(next, self.directory.path().join(CONFIG)).expect("the file can be replaced");
    }

    /// Memory that it has in use, in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line for memory");
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kibibytes * 1_024
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
