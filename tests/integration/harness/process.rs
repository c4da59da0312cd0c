//! Child processes that do not outlive the test, however it ends.

use std::{
    ffi::OsStr,
    io::{BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
};

/// Kills the process `$1` and removes the directory `$2` as soon as its input ends, which it does when the test
/// process is gone. It ignores the Ctrl-C that ends the tests.
const WATCHDOG: &str = "trap '' INT TERM; read _; kill -9 \"$1\"; if [ -n \"$2\" ]; then rm -rf \"$2\"; fi";

/// A running program. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
    /// Reads the standard error, so that the program never waits for it to be read.
    errors: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts `command` with its outputs piped; `directory`, if any, goes with it.
    pub(crate) fn start(mut command: Command, directory: Option<&Path>) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take();
        let errors = Some(thread::spawn(move || read_all(stderr)));
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(child.id().to_string())
            .arg(directory.map_or(OsStr::new(""), Path::as_os_str))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, watchdog, errors })
    }

    /// Its process id.
    #[cfg(target_os = "linux")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, once.
    pub(crate) fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().expect("its output is taken once"))
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_exited(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Sends a signal by its name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        // That of the shell: a small system has no other.
        let kill = format!("kill -{name} {}", self.child.id());
        let status = Command::new("sh").args(["-c", &kill]).status();
        assert!(status.is_ok_and(|status| status.success()), "{kill}");
    }

    /// Waits for its end; answers its status, what it wrote to the standard output, unless that was taken, and to
    /// the standard error.
    pub(crate) fn wait(mut self) -> (ExitStatus, String, String) {
        let output = read_all(self.child.stdout.take());
        // Its id may belong to another process once it has been waited for.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let status = self.child.wait().expect("it can be waited for");
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        (status, output, errors.unwrap_or_default())
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What cannot be read is as good as not written.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_exited() {
            // It was waited for: its id may belong to another process by now.
            let _ = self.watchdog.kill();
        }
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = self.child.wait();
    }
}
