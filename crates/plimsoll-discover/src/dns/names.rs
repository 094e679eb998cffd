//! Backends of a configuration that are written by name: each name is asked by itself.
//!
//! The list is that of the configuration, with the addresses of each name in its place. Each name
//! has its own TTL and back-off, and a name that fails keeps its addresses. So one wrong name changes
//! nothing for the others.
//!
//! ```text
//! addresses of a name = last answer ∪ the answer before it
//! ```
//!
//! So two answers in a row must lack an address before it is left out. An empty answer is an error
//! here: in a list of several names it cannot be told from a name that was removed by mistake.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use plimsoll::address::Address;
use plimsoll::discover::{Answer, Discover, Endpoint, SourceError};

use super::host::Host;
use super::schedule::Schedule;
use super::servers::{Ask, Servers};

/// A name in the configuration, or an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Host name or IP address, with a port; or a Unix socket.
    pub name: String,
    /// The addresses of a name by an earlier answer, and by the one before it; may be empty.
    pub known: [Vec<Address>; 2],
    /// Weight, zone and other properties of each of its backends. Its address has no effect.
    pub properties: Endpoint,
}

/// A list of backends by name. See the [module](super).
///
/// The first answer is the list of the known addresses, at once.
pub struct Names {
    entries: Vec<Entry>,
    questions: FuturesUnordered<Question>,
    /// The DNS server that they go to. `None`: those of the system.
    server: Option<SocketAddr>,
    /// Answers that are ready.
    ready: VecDeque<Answer>,
    on_found: OnFound,
}

/// Gets a name, and the addresses of its last answer and of the one before it.
type OnFound = Box<dyn FnMut(&str, &[Vec<Address>; 2]) + Send>;

/// A question under way: its entry, and the schedule for the next one.
type Question = Pin<Box<dyn Future<Output = Asked> + Send>>;

struct Asked {
    entry: usize,
    answer: Option<Answer>,
    again: Box<dyn FnOnce() -> Question + Send>,
}

struct Entry {
    named: Named,
    /// The last answer, and the one before it.
    answers: [Vec<Address>; 2],
    /// The reason why the last answer has no address.
    problem: Option<String>,
}

impl Names {
    /// A source for these names, by the servers of the system. One that DNS cannot express keeps its
    /// addresses, and is an error after the first list.
    #[must_use]
    pub fn new(names: Vec<Named>) -> Self {
        Self::by(names, Servers::System)
    }

    /// The same, asked at the DNS server at this address: without search domains and `/etc/hosts`.
    #[must_use]
    pub fn at(mut self, server: SocketAddr) -> Self {
        self.questions = questions(&self.entries, &Servers::At(server));
        self.server = Some(server);
        self
    }

    /// The same with a name whose addresses are not known; `problem` is the reason. It is an answer
    /// after the first list.
    #[must_use]
    pub fn incomplete(mut self, problem: impl Into<SourceError>) -> Self {
        self.ready.push_back(Err(problem.into()));
        self
    }

    /// Has `then` told the addresses of a name, when an answer has some: those of this answer, and
    /// those of the one before it.
    #[must_use]
    pub fn on_found(mut self, then: impl FnMut(&str, &[Vec<Address>; 2]) + Send + 'static) -> Self {
        self.on_found = Box::new(then);
        self
    }

    pub(super) fn by<A: Ask + Clone + 'static>(names: Vec<Named>, ask: A) -> Self {
        let entries: Vec<Entry> = names.into_iter().map(Entry::new).collect();
        let questions = questions(&entries, &ask);
        let mut source =
            Self { entries, questions, server: None, ready: VecDeque::new(), on_found: Box::new(|_, _| ()) };
        source.answer();
        source
    }

    /// All backends, each address once.
    fn list(&self) -> Vec<Endpoint> {
        let mut seen = HashSet::new();
        let backends = self.entries.iter().flat_map(Entry::backends);
        backends.filter(|backend| seen.insert(backend.address)).collect()
    }

    /// Takes the answer about one name.
    fn take(&mut self, at: usize, answer: Answer) {
        let entry = &mut self.entries[at];
        let before = entry.addresses();
        let was_failing = entry.problem.is_some();
        let error = match answer {
            Ok(found) if found.is_empty() => Some(format!("{}: the name has no address", entry.named.name).into()),
            Ok(found) => {
                let found: Vec<Address> = found.iter().map(|backend| backend.address).collect();
                let [last, earlier] = &mut entry.answers;
                *earlier = std::mem::replace(last, found);
                (self.on_found)(&entry.named.name, &entry.answers);
                None
            }
            Err(error) => Some(error),
        };
        entry.problem = error.as_ref().map(SourceError::to_string);
        if let Some(error) = error {
            self.ready.push_back(Err(error));
        } else if was_failing || before != entry.addresses() {
            self.answer();
        }
    }

    /// The list is an answer. It says that the source works, and a name may still fail.
    fn answer(&mut self) {
        self.ready.push_back(Ok(self.list()));
        if let Some(problem) = self.entries.iter().find_map(|entry| entry.problem.clone()) {
            self.ready.push_back(Err(problem.into()));
        }
    }
}

impl Entry {
    fn new(named: Named) -> Self {
        let (answers, problem) = match (named.name.parse(), Host::parse(&named.name)) {
            // It never changes.
            (Ok(address), _) => ([vec![address], Vec::new()], None),
            (Err(_), Ok(_)) => (named.known.clone(), None),
            (Err(_), Err(error)) => (named.known.clone(), Some(error.to_string())),
        };
        Self { named, answers, problem }
    }

    /// The question about it. `None`: it is an address, or no name that DNS can express.
    fn host(&self) -> Option<Host> {
        let is_address = self.named.name.parse::<Address>().is_ok();
        // An answer may lack a family that failed, and not say so.
        Host::parse(&self.named.name).ok().filter(|_| !is_address).map(|host| host.knowing(&self.addresses()))
    }

    /// Its addresses, sorted.
    fn addresses(&self) -> Vec<Address> {
        let mut addresses = self.answers.concat();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn backends(&self) -> impl Iterator<Item = Endpoint> {
        self.addresses().into_iter().map(|address| self.named.properties.clone().at(address))
    }
}

/// The first questions about all names.
fn questions<A: Ask + Clone + 'static>(entries: &[Entry], ask: &A) -> FuturesUnordered<Question> {
    let first = |(i, entry): (usize, &Entry)| {
        let schedule = Schedule::new(entry.host()?, ask.clone()).after(&entry.answers[0]);
        Some(question(i, schedule))
    };
    entries.iter().enumerate().filter_map(first).collect()
}

/// Asks when it is time.
fn question<A: Ask + 'static>(entry: usize, mut schedule: Schedule<Host, A>) -> Question {
    Box::pin(async move {
        let answer = schedule.next().await;
        Asked { entry, answer, again: Box::new(move || question(entry, schedule)) }
    })
}

impl Discover for Names {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            if let Some(answer) = self.ready.pop_front() {
                return Some(answer);
            }
            let Asked { entry, answer, again } = self.questions.next().await?;
            if let Some(answer) = answer {
                self.take(entry, answer);
                self.questions.push(again());
            }
        }
    }

    fn kind(&self) -> &'static str {
        "static"
    }

    fn description(&self) -> String {
        self.server.map(|server| format!("at {server}")).unwrap_or_default()
    }
}
