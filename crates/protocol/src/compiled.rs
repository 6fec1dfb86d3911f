//! Where the code of generic protocols is compiled.

use crate::{Input, Now, Outputs, Protocol};
use types::{Malformed, Reader, Rng, Wire};

type Step<P> =
    for<'b, 'i, 'r, 'o, 'p> fn(&mut P, Now, &'b mut Vec<Input<'i, P>>, &'r mut Rng, &'o mut Outputs<'p, P>);

/// Names the code of an instance of a protocol, so that it is compiled in the crate that has a static of this type. At the
/// optimization of tests rustc takes it from there in all crates above, instead of compiling it again in the simulator, in the
/// figures and in every test; see [`compile_here`](crate::compile_here).
#[derive(Debug)]
pub struct Compiled<P: Protocol> {
    _step: Step<P>,
    _checkpoint: fn(&mut P, u64, &mut Vec<u8>) -> Option<u64>,
    _encode: fn(&P::Message, &mut Vec<u8>),
    _decode: for<'r> fn(&mut Reader<'r>) -> Result<P::Message, Malformed>,
}

impl<P: Protocol> Compiled<P> {
    /// See the type.
    #[must_use]
    pub const fn new() -> Self {
        Compiled {
            _step: P::step,
            _checkpoint: P::checkpoint,
            _encode: <P::Message as Wire>::encode,
            _decode: <P::Message as Wire>::decode,
        }
    }
}

impl<P: Protocol> Default for Compiled<P> {
    fn default() -> Self {
        Compiled::new()
    }
}

/// Compiles the code of these instances here, in builds with debug assertions: see [`Compiled`]. Not in a crate's own unit
/// tests, which compile what they use.
#[macro_export]
macro_rules! compile_here {
    ($($name:ident: $instance:ty),+ $(,)?) => {
        $(
            #[cfg(all(debug_assertions, not(test)))]
            #[used]
            static $name: $crate::Compiled<$instance> = $crate::Compiled::new();
        )+
    };
}
