//! Servers of HTTP and of redis for the examples, on free ports of this machine.
#![allow(dead_code, reason = "an example uses one of them")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A server of HTTP. It sheds one request in three at `/`, and all at `/busy`.
pub(crate) async fn http() -> io::Result<SocketAddr> {
    let requests = Arc::new(AtomicU32::new(0));
    serve(move |stream| exchange_http(stream, Arc::clone(&requests))).await
}

/// A server of redis. It knows GET of any key, and is busy for the key `busy`.
pub(crate) async fn redis() -> io::Result<SocketAddr> {
    serve(exchange_redis).await
}

async fn serve<F>(exchange: impl Fn(BufReader<TcpStream>) -> F + Send + 'static) -> io::Result<SocketAddr>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(exchange(BufReader::new(stream)));
        }
    });
    Ok(address)
}

async fn exchange_http(mut stream: BufReader<TcpStream>, requests: Arc<AtomicU32>) -> io::Result<()> {
    loop {
        let mut first = String::new();
        if stream.read_line(&mut first).await? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while stream.read_line(&mut line).await? > 2 {
            line.clear();
        }
        let is_shed = first.starts_with("GET /busy") || requests.fetch_add(1, Ordering::Relaxed) % 3 == 0;
        let answer: &[u8] = match is_shed {
            true => b"HTTP/1.1 503 Service Unavailable\r\nx-amz-retry-after: 20\r\ncontent-length: 0\r\n\r\n",
            false => b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        };
        stream.write_all(answer).await?;
    }
}

async fn exchange_redis(mut stream: BufReader<TcpStream>) -> io::Result<()> {
    loop {
        let Some(words) = read_command(&mut stream).await? else { return Ok(()) };
        let answer = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["GET", "busy"] => "-BUSY a script runs\r\n".to_owned(),
            ["GET", key] => format!("${}\r\n{key}\r\n", key.len()),
            _ => "+OK\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// An array of bulk strings, as clients send commands.
async fn read_command(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<String>>> {
    let Some(count) = read_length(stream).await? else { return Ok(None) };
    let mut words = Vec::new();
    for _ in 0..count {
        let length = read_length(stream).await?.unwrap_or(0);
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await?;
        words.push(String::from_utf8_lossy(&word[..length]).into_owned());
    }
    Ok(Some(words))
}

/// A line with a sign and a number; `None` at the end of the connection.
async fn read_length(stream: &mut BufReader<TcpStream>) -> io::Result<Option<usize>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    line[1..].trim().parse().map(Some).map_err(io::Error::other)
}
