//! The least that a proxy on this machine can cost: what one read holds goes to the next backend in turn, and what its answer's
//! first read holds goes back. Nothing is parsed, chosen, measured, limited or timed; a message that comes in two pieces, or an
//! answer that is longer than a read, breaks it. What it costs is the kernel.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(0);

enum Role {
    Client,
    /// The backend's place, and the client that it answers.
    Backend(usize, Option<Token>),
}

struct Connection {
    stream: TcpStream,
    role: Role,
}

struct Relay {
    poll: Poll,
    backends: Vec<SocketAddr>,
    /// Of each backend.
    idle: Vec<Vec<Token>>,
    next: usize,
    connections: HashMap<Token, Connection>,
    last: usize,
}

impl Relay {
    fn add(&mut self, mut stream: TcpStream, role: Role) -> io::Result<Token> {
        stream.set_nodelay(true)?;
        self.last += 1;
        let token = Token(self.last);
        self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
        self.connections.insert(token, Connection { stream, role });
        Ok(token)
    }

    fn next_backend(&mut self) -> io::Result<Token> {
        self.next = (self.next + 1) % self.backends.len();
        if let Some(token) = self.idle[self.next].pop() {
            return Ok(token);
        }
        let stream = std::net::TcpStream::connect(self.backends[self.next])?;
        stream.set_nonblocking(true)?;
        self.add(TcpStream::from_std(stream), Role::Backend(self.next, None))
    }

    fn on_readable(&mut self, token: Token, buffer: &mut [u8]) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let length = match connection.stream.read(buffer) {
            Ok(0) => return self.end(token),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(_) => return self.end(token),
        };
        let to = match &mut connection.role {
            Role::Client => {
                let to = self.next_backend()?;
                if let Some(Connection { role: Role::Backend(_, client), .. }) = self.connections.get_mut(&to) {
                    *client = Some(token);
                }
                Some(to)
            }
            Role::Backend(place, client) => {
                self.idle[*place].push(token);
                client.take()
            }
        };
        if let Some(to) = to.and_then(|to| self.connections.get_mut(&to)) {
            to.stream.write_all(&buffer[..length])?;
        }
        Ok(())
    }

    fn end(&mut self, token: Token) -> io::Result<()> {
        if let Some(Connection { role: Role::Backend(place, _), .. }) = self.connections.remove(&token) {
            self.idle[place].retain(|idle| *idle != token);
        }
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<SocketAddr>().expect("an address"));
    let mut listener = TcpListener::bind(arguments.next().expect("usage: relay-peer LISTEN BACKEND..."))?;
    let backends: Vec<SocketAddr> = arguments.collect();
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let idle = backends.iter().map(|_| Vec::new()).collect();
    let mut relay = Relay { poll, backends, idle, next: 0, connections: HashMap::new(), last: 0 };
    let (mut events, mut buffer) = (Events::with_capacity(256), [0; 16_384]);
    loop {
        relay.poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() != LISTENER {
                relay.on_readable(event.token(), &mut buffer)?;
                continue;
            }
            while let Ok((stream, _)) = listener.accept() {
                relay.add(stream, Role::Client)?;
            }
        }
    }
}
