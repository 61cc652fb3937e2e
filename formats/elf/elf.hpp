// The little of ELF that decides whether a library may be loaded, read from its bytes: nothing of it is mapped or run.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mortise {

struct ElfSymbol {
  std::string name;
  std::string version;  // of the library that is to bring it: "GLIBC_2.17"; empty: any
};

struct ElfFile {
  uint16_t machine = 0, type = 0;   // EM_…, ET_…
  std::vector<std::string> needed;  // DT_NEEDED, in order
  std::string run_path;             // DT_RUNPATH, else DT_RPATH: where those are looked for first
  std::vector<std::string> exported;
  std::vector<ElfSymbol> undefined;   // those without which it does not load: weak ones are left out
  std::vector<std::string> versions;  // "GLIBC_2.34": each must be there, also if only a weak symbol is of it
};

// What the file says about itself does not fit its bytes.
struct ElfError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Reads what the loader would read (program headers and the dynamic table, not sections, which may be stripped). Every
// offset and count is checked against the bytes, so that any bytes may be given. Throws ElfError.
ElfFile read_elf(std::string_view bytes);

}  // namespace mortise
