// toml++, of which Debian has a shared library only, from its headers.
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
