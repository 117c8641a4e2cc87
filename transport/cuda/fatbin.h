// Makes a fat binary that nvcc wrote part of an object file.
#pragma once

// At namespace scope of one source file: `symbol` becomes an array of bytes, hidden from other
// libraries, with the content of the file whose name the string literal `path` is.
// NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared takes none.
#define RAILHOP_EMBED_FATBIN(symbol, path) \
  asm(".pushsection .rodata\n"             \
      ".balign 64\n"                       \
      ".hidden " #symbol                   \
      "\n"                                 \
      ".globl " #symbol "\n" #symbol       \
      ":\n"                                \
      ".incbin \"" path                    \
      "\"\n"                               \
      ".balign 8\n"                        \
      ".popsection\n");                    \
  extern "C" __attribute__((visibility("hidden"))) const unsigned char symbol[]
// NOLINTEND(bugprone-macro-parentheses)
