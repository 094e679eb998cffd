//! Things that events refer to: a number for each, used again when its thing is gone.
//!
//! Why not a crate's: events hold 32-bit numbers to stay small, and who refers to a thing that is gone is a mistake
//! that a run should not survive.

/// Things by number.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    things: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Takes a thing in.
    ///
    /// # Panics
    /// When there are 2³² things.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.things[number as usize] = thing;
            return number;
        }
        let number = u32::try_from(self.things.len()).expect("memory ends long before 32 bits do");
        self.things.push(thing);
        number
    }

    /// Gives the number of a thing free. The thing stays readable until the number is used again.
    pub(crate) fn free(&mut self, number: u32) {
        self.free.push(number);
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.things.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.things[number as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.things[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        slab.free(a);
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.insert('c'), a);
        assert_eq!((slab[a], slab[b]), ('c', 'b'));
    }
}
