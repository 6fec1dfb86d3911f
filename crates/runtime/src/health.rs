//! Is the process well?

/// What a health check learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// True when reads and writes are served.
    pub ready: bool,
    /// What is wrong, or `ok`.
    pub detail: String,
}
