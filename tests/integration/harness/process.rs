//! Child processes that do not outlive the test, however it ends.

use std::{
    ffi::OsStr,
    io::{BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio},
};

/// Kills the process `$1` and removes the directory `$2` as soon as its input ends, which it does when the test
/// process is gone. It ignores the Ctrl-C that ends the tests.
const WATCHDOG: &str = "trap '' INT TERM; read _; kill -9 \"$1\"; if [ -n \"$2\" ]; then rm -rf \"$2\"; fi";

/// A running program. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Starts `command` with its outputs piped; `directory`, if any, goes with it.
    pub(crate) fn start(mut command: Command, directory: Option<&Path>) -> std::io::Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(child.id().to_string())
            .arg(directory.map_or(OsStr::new(""), Path::as_os_str))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, watchdog })
    }

    /// Its standard output, once.
    pub(crate) fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().expect("its output is taken once"))
    }

    /// Its standard error, once.
    pub(crate) fn stderr(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().expect("its output is taken once"))
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_exited(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Sends a signal by its name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(kill.is_ok_and(|status| status.success()), "kill -{name} {}", self.child.id());
    }

    /// Waits for its end; answers its status and what it wrote to outputs that were not taken.
    pub(crate) fn wait(mut self) -> (ExitStatus, String, String) {
        // Its id may belong to another process once it has been waited for.
        let _ = self.watchdog.kill();
        let stderr = self.child.stderr.take();
        let errors = std::thread::spawn(move || read_all(stderr));
        let output = read_all(self.child.stdout.take());
        let status = self.child.wait().expect("it can be waited for");
        (status, output, errors.join().expect("its standard error can be read"))
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child has not been waited for, so that its id is still its own.
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = self.child.wait();
    }
}
