//! Enums whose text is the name of the variant.

/// Defines an enum with all of its variants in `ALL`, and with `as_str`.
#[macro_export]
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// All variants.
            pub const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];

            /// Returns the name of the variant, as in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)+ }
            }
        }
    };
}
