//! A webhook receiver on threads of its own: it answers with the status it is told, and keeps what
//! came, in order.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
};

/// One request.
#[derive(Clone)]
pub struct Request {
    headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// A header by its lower-case name; empty if it was not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

#[derive(Clone, Default)]
pub struct Receiver {
    status: Arc<AtomicU16>,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    /// Listens on loopback until the process ends.
    pub fn start(status: u16) -> std::io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let receiver = Self::default();
        receiver.answer(status);
        let serving = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let receiver = serving.clone();
                receiver.connections.fetch_add(1, Ordering::SeqCst);
                // A client that went away in the middle is no fault of ours.
                std::thread::spawn(move || stream.and_then(|stream| receiver.serve(stream)));
            }
        });
        Ok((receiver, address))
    }

    /// From here on.
    pub fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub fn seen(&self) -> Vec<Request> {
        self.lock().clone()
    }

    /// Connections that were made, whether anything was asked or not.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Request>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut headers = BTreeMap::new();
            loop {
                line.clear();
                reader.read_line(&mut line)?;
                let Some((name, value)) = line.trim_end().split_once(':') else {
                    break;
                };
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            let length = headers.get("content-length").map_or("0", String::as_str);
            let mut body = Vec::new();
            let length = length.parse().unwrap_or(0);
            reader.by_ref().take(length).read_to_end(&mut body)?;
            self.lock().push(Request { headers, body });
            let status = self.status.load(Ordering::SeqCst);
            write!(writer, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
}
