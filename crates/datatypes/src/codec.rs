//! The binary form of operations and effects: a tag byte, then the fields, whose byte strings are borrowed.

use crate::Items;
use types::{Malformed, Reader, Wire, put_bytes};

/// A field of an operation or an effect. Unlike [`Wire`] it may borrow from what it is read from.
pub(crate) trait Field<'a>: Sized {
    /// Appends the binary form.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads the binary form.
    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed>;
}

impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    #[inline]
    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        input.bytes()
    }
}

impl<'a> Field<'a> for Items<'a> {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    #[inline]
    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Items::decode(input)
    }
}

/// A score: a number that is not NaN, and with one zero.
impl<'a> Field<'a> for f64 {
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    #[inline]
    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let number = f64::decode(input)?;
        if number.is_nan() { Err(Malformed("score")) } else { Ok(number) }
    }
}

/// Makes types that have a wire form fields.
macro_rules! wire_fields {
    ($($type:ty),* $(,)?) => {$(
        impl<'a> $crate::codec::Field<'a> for $type {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) { types::Wire::encode(self, out); }

            #[inline]
            fn take(input: &mut types::Reader<'a>) -> Result<Self, types::Malformed> { types::Wire::decode(input) }
        }
    )*};
}
pub(crate) use wire_fields;

wire_fields!(bool, i64, u64, Option<i64>, Option<u64>, Option<(i64, i64)>);

/// Gives an enum whose variants have named fields (or none) its `encode` and `decode`.
macro_rules! borrowed_enum {
    ($name:ident, $malformed:literal, { $($tag:literal => $variant:ident $({ $($field:ident),* })?),* $(,)? }) => {
        impl<'a> $name<'a> {
            /// Appends the binary form.
            #[inline]
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $( $name::$variant $({ $($field),* })? => {
                    out.push($tag);
                    $( $( $crate::codec::Field::put($field, out); )* )?
                } )* }
            }

            /// Reads the binary form, borrowing byte strings from it.
            pub fn decode(input: &mut types::Reader<'a>) -> Result<Self, types::Malformed> {
                Ok(match input.byte()? {
                    $( $tag => $name::$variant $({ $($field: $crate::codec::Field::take(input)?),* })?, )*
                    _ => return Err(types::Malformed($malformed)),
                })
            }
        }
    };
}
pub(crate) use borrowed_enum;
