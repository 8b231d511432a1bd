//! Export of the metrics: to a file that is replaced atomically, or over HTTP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::messages;
use anyhow::Context;

/// Content type required by OpenMetrics.
const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Limits for a client: time to send its request, and length of the request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const LONGEST_REQUEST: u64 = 8192;

#[derive(Debug)]
pub enum Metrics {
    File(PathBuf),
    /// The text that the server thread sends.
    Served(Arc<Mutex<String>>),
}

impl Metrics {
    /// Parses a destination: an address if it ends with a colon and a port number, a file
    /// otherwise.
    ///
    /// # Errors
    ///
    /// The process cannot listen at the address.
    pub fn open(place: &str) -> anyhow::Result<Self> {
        let is_address =
            place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !is_address {
            return Ok(Metrics::File(place.into()));
        }
        let place =
            if place.starts_with(':') { format!("localhost{place}") } else { place.to_owned() };
        let listener =
            TcpListener::bind(&place).with_context(|| messages::cannot_listen(&place))?;
        let text = Arc::new(Mutex::new(String::from("# EOF\n")));
        let served = Arc::clone(&text);
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&listener, &served))?;
        Ok(Metrics::Served(text))
    }

    /// Publishes `text`. Ignores a failure to write the file; the next call tries again.
    pub fn publish(&self, text: String) {
        match self {
            Metrics::Served(served) => {
                *served.lock().unwrap_or_else(PoisonError::into_inner) = text
            }
            Metrics::File(path) => {
                let mut name = path.clone().into_os_string();
                name.push(".new");
                let _ = std::fs::write(&name, text).and_then(|()| std::fs::rename(&name, path));
            }
        }
    }
}

fn serve(listener: &TcpListener, text: &Mutex<String>) {
    for stream in listener.incoming().flatten() {
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A client that disconnects early gets no answer.
        let _ = answer(stream, &text);
    }
}

fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut request = Vec::new();
    let mut reader = (&stream).take(LONGEST_REQUEST);
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match reader.read(&mut part)? {
            0 => break,
            length => request.extend_from_slice(&part[..length]),
        }
    }
    let (status, body) = match request.split(|&byte| byte == b' ').nth(1) {
        Some(b"/metrics" | b"/") => ("200 OK", text),
        _ => ("404 Not Found", "# EOF\n"),
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
        metrics.publish("one".into());
        metrics.publish("two".into());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn server_answers_metrics_and_rejects_other_paths() {
        let free = TcpListener::bind("localhost:0").unwrap().local_addr().unwrap();
        let metrics = Metrics::open(&free.to_string()).unwrap();
        metrics.publish("unconvoy_sched_bound 4\n# EOF\n".into());
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
