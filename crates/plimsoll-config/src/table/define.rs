//! The macro that defines a table: a struct, its defaults and its settings from one list of lines.

/// Defines a struct that is a [`Table`](crate::Table), one line for each setting:
///
/// ```text
/// KEY: TYPE = DEFAULT, FORM(CODEC), EFFECT;
/// ```
///
/// KEY is the field and the name in the file. FORM is a method of [`Visitor`](crate::Visitor); it
/// takes a codec if its name ends in `_as`. EFFECT is that of a reload; a line without one has the
/// effect of the table around it. Behind the struct come the constants of the trait, if any.
///
/// ```
/// use plimsoll_config::{Effect, Own, table};
///
/// const NEXT_LINE: Effect = Effect::Applied("from the next line on");
///
/// table! {
///     /// A log.
///     pub struct Log {
///         /// Its file.
///         pub path: Option<String> = None, switch, Effect::Restart("opened at the start");
///         /// Lines a second at most.
///         pub max_rate: u32 = 100, value_as(Own), NEXT_LINE;
///     }
///     OFF = "path = \"off\"";
/// }
/// assert_eq!(Log::default().max_rate, 100);
/// ```
#[macro_export]
macro_rules! table {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[$field_attribute:meta])*
                $field_visibility:vis $key:ident: $type:ty = $default:expr,
                $form:ident $(($codec:expr))? $(, $effect:expr)?;
            )*
        }
        $($constant:ident = $text:expr;)*
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::Table for $name {
            $(const $constant: &'static str = $text;)*

            fn settings<V: $crate::Visitor>(&mut self, visitor: &mut V) {
                $(
                    let key = $crate::Key::from(stringify!($key))$(.with($effect))?;
                    visitor.$form(key, &mut self.$key $(, $codec)?);
                )*
            }
        }
    };
}
