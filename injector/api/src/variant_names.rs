//! The names of the variants of enums, as objects have them.

/// Implements `as_str` for an enum without fields.
macro_rules! impl_as_str {
    ($type:ident: $($variant:ident)+) => {
        impl $type {
            /// Returns the name, as objects have it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}

pub(crate) use impl_as_str;
