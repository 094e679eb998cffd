//! The terminal: taken at the start, and given back at every end: a key, a signal, a panic.

use std::io::{self, Stdout};
use std::sync::mpsc::Sender;
use std::time::Duration;

use crossterm::event::{self, Event};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::process::{Signal, getpid, kill_process};

use super::Input;

/// Time between two looks at whether the screen has ended.
const LOOK: Duration = Duration::from_millis(200);

/// The screen. Dropped, it gives the terminal back.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, crossterm::cursor::Hide)
}

fn give_back() {
    // There is no place left to tell of a failure.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, crossterm::cursor::Show);
    let _ = disable_raw_mode();
}

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Else the message is on the screen that goes.
            give_back();
            earlier(panic);
        }));
        if let Err(error) = take() {
            give_back();
            return Err(error);
        }
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout())).inspect_err(|_| give_back())?;
        Ok(Self { terminal })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Back to the shell until it continues this process.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process(getpid(), Signal::TSTP)?;
        take()?;
        // A new one draws everything. To clear the old one would ask the terminal for its cursor, and the
        // answer goes to the reader of keys.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Reads keys until nobody listens.
pub(super) fn read_keys(to: &Sender<Input>) {
    loop {
        let input = match event::poll(LOOK).and_then(|is_ready| is_ready.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) => Input::Key(key),
            Ok(Some(Event::Resize(..))) => Input::Redraw,
            // The end is noticed by sending.
            Ok(_) => Input::Nothing,
            // The terminal is gone.
            Err(_) => Input::End,
        };
        let is_end = matches!(input, Input::End);
        if to.send(input).is_err() || is_end {
            return;
        }
    }
}
