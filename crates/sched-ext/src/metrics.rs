//! Export of the metrics: to a file that is replaced atomically, or over HTTP.

use std::cell::Cell;
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::messages;
use anyhow::Context;

/// Content type required by OpenMetrics.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// OpenMetrics without a metric, until the first report.
const EMPTY: &str = "# EOF\n";

/// Time limit for a client, from its connection to the end of the answer. Others wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest request, in bytes.
const LONGEST_REQUEST: u64 = 8192;

#[derive(Debug)]
pub enum Metrics {
    /// The file, and whether the last call of `publish` failed.
    File(PathBuf, Cell<bool>),
    /// The text that the server thread sends.
    Served(Arc<Mutex<String>>),
}

impl Metrics {
    /// Parses a destination: an address if it ends with a colon and a port number, a file
    /// otherwise, which is written here for the first time.
    ///
    /// # Errors
    ///
    /// The process cannot listen at the address, or cannot write the file.
    pub fn open(place: &str) -> anyhow::Result<Self> {
        let is_address =
            place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !is_address {
            let path = PathBuf::from(place);
            replace(&path, EMPTY).with_context(|| messages::cannot_write_metrics(&path))?;
            return Ok(Metrics::File(path, Cell::new(false)));
        }
        let place =
            if place.starts_with(':') { format!("localhost{place}") } else { place.to_owned() };
        let listener =
            TcpListener::bind(&place).with_context(|| messages::cannot_listen(&place))?;
        let text = Arc::new(Mutex::new(EMPTY.to_owned()));
        let served = Arc::clone(&text);
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&listener, &served))?;
        Ok(Metrics::Served(text))
    }

    /// Publishes `text`. After a failure to write the file, the next call tries again.
    ///
    /// # Errors
    ///
    /// The file cannot be written, and the last call did not fail.
    pub fn publish(&self, text: String) -> anyhow::Result<()> {
        match self {
            Metrics::Served(served) => {
                *served.lock().unwrap_or_else(PoisonError::into_inner) = text;
                Ok(())
            }
            Metrics::File(path, has_failed) => {
                let result = replace(path, &text);
                if has_failed.replace(result.is_err()) {
                    return Ok(());
                }
                result.with_context(|| messages::cannot_write_metrics(path))
            }
        }
    }
}

/// Replaces a file, or the one that a link leads to. The random name of the unfinished file keeps
/// other users from placing a link there, through which this privileged process would write. A
/// device or a pipe is an error: it could block the scheduler, and the rename would destroy it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if path.exists() && !path.is_file() {
        return Err(std::io::Error::other(messages::NOT_A_REGULAR_FILE));
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut unfinished =
        tempfile::Builder::new().tempfile_in(directory.unwrap_or(Path::new(".")))?;
    // Whatever the umask: a collector without privilege reads the file.
    unfinished.as_file().set_permissions(Permissions::from_mode(0o644))?;
    unfinished.as_file_mut().write_all(text.as_bytes())?;
    unfinished.persist(path)?;
    Ok(())
}

fn serve(listener: &TcpListener, text: &Mutex<String>) {
    for stream in listener.incoming().flatten() {
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A client that disconnects early gets no answer.
        let _ = answer(Timed { stream, end: Instant::now() + PATIENCE }, &text);
    }
}

/// A connection whose reads and writes all together end in time.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(to)
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

fn answer(mut stream: Timed, text: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut reader = (&mut stream).take(LONGEST_REQUEST);
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match reader.read(&mut part)? {
            0 => break,
            length => request.extend_from_slice(&part[..length]),
        }
    }
    let (status, body) = match request.split(|&byte| byte == b' ').nth(1) {
        Some(b"/metrics" | b"/") => ("200 OK", text),
        _ => ("404 Not Found", EMPTY),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {FORMAT}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_atomically() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.txt");
        let metrics = Metrics::open(path.to_str().unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), EMPTY);
        metrics.publish("one".into()).unwrap();
        metrics.publish("two".into()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn file_that_cannot_be_written_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing/metrics");
        let error = format!("{:#}", Metrics::open(path.to_str().unwrap()).unwrap_err());
        assert!(error.contains("missing/metrics") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn first_failure_of_a_series_is_reported() {
        let outer = tempfile::tempdir().unwrap();
        let directory = outer.path().join("inner");
        let path = directory.join("metrics");
        std::fs::create_dir(&directory).unwrap();
        let metrics = Metrics::open(path.to_str().unwrap()).unwrap();
        for _ in 0..2 {
            std::fs::remove_dir_all(&directory).unwrap();
            assert!(metrics.publish("one".into()).is_err());
            assert!(metrics.publish("two".into()).is_ok(), "reported again");
            std::fs::create_dir(&directory).unwrap();
            assert!(metrics.publish("three".into()).is_ok());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "three");
        }
    }

    #[test]
    fn link_is_followed_and_pipe_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link, pipe] = ["metrics", "link", "pipe"].map(|it| directory.path().join(it));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Metrics::open(link.to_str().unwrap()).unwrap().publish("one".into()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        assert!(link.is_symlink());
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = format!("{:#}", Metrics::open(pipe.to_str().unwrap()).unwrap_err());
        assert!(error.contains("regular file"), "{error}");
        assert!(!pipe.is_file(), "the pipe is gone");
    }

    #[test]
    fn link_beside_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["metrics", "other"].map(|name| directory.path().join(name));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("metrics.new")).unwrap();
        Metrics::open(path.to_str().unwrap()).unwrap().publish("one".into()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }

    #[test]
    fn client_that_sends_slowly_is_disconnected() {
        let free = TcpListener::bind("localhost:0").unwrap().local_addr().unwrap();
        let _metrics = Metrics::open(&free.to_string()).unwrap();
        let mut slow = TcpStream::connect(free).unwrap();
        // Within the request's length this could take an hour.
        let ended = (0..1200).find(|_| {
            std::thread::sleep(Duration::from_millis(50));
            slow.write_all(b"x").is_err()
        });
        assert!(ended.is_some(), "the connection is still open");
        let mut other = TcpStream::connect(free).unwrap();
        other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    }

    #[test]
    fn server_answers_metrics_and_rejects_other_paths() {
        let free = TcpListener::bind("localhost:0").unwrap().local_addr().unwrap();
        let metrics = Metrics::open(&free.to_string()).unwrap();
        metrics.publish("unconvoy_sched_bound 4\n# EOF\n".into()).unwrap();
        let ask = |path: &str| {
            let mut stream = TcpStream::connect(free).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let found = ask("/metrics");
        assert!(
            found.starts_with("HTTP/1.1 200 OK\r\n") && found.ends_with("bound 4\n# EOF\n"),
            "{found}"
        );
        assert!(ask("/other").starts_with("HTTP/1.1 404"));
    }
}
