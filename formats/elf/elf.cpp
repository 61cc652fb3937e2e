#include "formats/elf/elf.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace mortise {
namespace {

// The bytes of the file, and the addresses that its segments give them.
class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, range(offset, sizeof(T)).data(), sizeof(T));
    return value;
  }

  void map(const Elf64_Phdr& segment) { segments_.push_back(segment); }

  // Offset in the file of what will stand at `address`. Whether the file goes on until there is asked when it is read.
  uint64_t offset(uint64_t address) const {
    for (const Elf64_Phdr& s : segments_)
      if (address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz) return s.p_offset + (address - s.p_vaddr);
    throw ElfError("its dynamic table points outside its segments");
  }

  std::string_view range(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || bytes_.size() - offset < size) throw ElfError("it is cut short");
    return bytes_.substr(offset, size);
  }

  uint64_t size() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  std::vector<Elf64_Phdr> segments_;
};

// The entries of PT_DYNAMIC that matter, by tag; DT_NEEDED, which repeats, apart.
struct Dynamic {
  std::map<int64_t, uint64_t> values;
  std::vector<uint64_t> needed;
  bool has(int64_t tag) const { return values.count(tag) > 0; }
  uint64_t get(int64_t tag) const {
    const auto found = values.find(tag);
    if (found == values.end()) throw ElfError("its dynamic table is incomplete");
    return found->second;
  }
};

Dynamic read_dynamic(const Image& image, const Elf64_Phdr& segment) {
  Dynamic dynamic;
  for (uint64_t i = 0; i < segment.p_filesz / sizeof(Elf64_Dyn); ++i) {
    const auto entry = image.at<Elf64_Dyn>(segment.p_offset + i * sizeof(Elf64_Dyn));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) dynamic.needed.push_back(entry.d_un.d_val);
    else dynamic.values[entry.d_tag] = entry.d_un.d_val;
  }
  return dynamic;
}

// No table says how many dynamic symbols there are; the hash tables, which list the defined ones last, do so
// indirectly.
uint64_t count_symbols(const Image& image, const Dynamic& dynamic) {
  if (dynamic.has(DT_HASH)) return image.at<uint32_t>(image.offset(dynamic.get(DT_HASH)) + 4);
  const uint64_t table = image.offset(dynamic.get(DT_GNU_HASH));
  const uint64_t buckets = image.at<uint32_t>(table), first = image.at<uint32_t>(table + 4),
                 bloom = image.at<uint32_t>(table + 8);
  const uint64_t bucket_at = table + 16 + bloom * 8, chain_at = bucket_at + buckets * 4;
  uint64_t last = 0;
  for (uint64_t i = 0; i < buckets; ++i) last = std::max<uint64_t>(last, image.at<uint32_t>(bucket_at + i * 4));
  if (last < first) return first;  // nothing is defined
  while ((image.at<uint32_t>(chain_at + (last - first) * 4) & 1) == 0) ++last;
  return last + 1;
}

class Strings {
 public:
  Strings(const Image& image, const Dynamic& dynamic)
      : text_(image.range(image.offset(dynamic.get(DT_STRTAB)), dynamic.get(DT_STRSZ))) {}
  std::string operator[](uint64_t at) const {
    const size_t end = at < text_.size() ? text_.find('\0', at) : text_.npos;
    if (end == text_.npos) throw ElfError("a name lies outside its string table");
    return std::string(text_.substr(at, end - at));
  }

 private:
  std::string_view text_;
};

// Version names of undefined symbols by the index that DT_VERSYM uses.
std::map<uint16_t, std::string> read_versions(const Image& image, const Dynamic& dynamic, const Strings& strings) {
  std::map<uint16_t, std::string> names;
  if (!dynamic.has(DT_VERNEED)) return names;
  uint64_t at = image.offset(dynamic.get(DT_VERNEED));
  // Each list ends with a `next` of 0. In a damaged file entries may overlap, so their number has a bound too.
  uint64_t left = image.size() / sizeof(Elf64_Vernaux);
  for (;;) {
    const auto need = image.at<Elf64_Verneed>(at);
    uint64_t aux_at = at + need.vn_aux;
    for (uint32_t i = 0; i < need.vn_cnt; ++i) {
      if (left-- == 0) throw ElfError("it counts more versions than it has bytes");
      const auto aux = image.at<Elf64_Vernaux>(aux_at);
      names[aux.vna_other & 0x7fff] = strings[aux.vna_name];
      if (aux.vna_next == 0) break;
      aux_at += aux.vna_next;
    }
    if (need.vn_next == 0 || need.vn_cnt == 0) return names;
    at += need.vn_next;
  }
}

void read_symbols(const Image& image, const Dynamic& dynamic, const Strings& strings, ElfFile& file) {
  const uint64_t table = image.offset(dynamic.get(DT_SYMTAB));
  const uint64_t count = count_symbols(image, dynamic);
  if (count > image.size() / sizeof(Elf64_Sym)) throw ElfError("it counts more symbols than it has bytes");
  const auto versions = read_versions(image, dynamic, strings);
  for (const auto& [index, name] : versions) file.versions.push_back(name);
  const uint64_t version_at = dynamic.has(DT_VERSYM) ? image.offset(dynamic.get(DT_VERSYM)) : 0;
  for (uint64_t i = 1; i < count; ++i) {  // the first is a placeholder
    const auto symbol = image.at<Elf64_Sym>(table + i * sizeof(Elf64_Sym));
    const unsigned bind = ELF64_ST_BIND(symbol.st_info), visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    if (symbol.st_shndx == SHN_UNDEF) {
      if (bind != STB_GLOBAL) continue;
      const auto version = version_at ? versions.find(image.at<uint16_t>(version_at + i * 2) & 0x7fff) : versions.end();
      file.undefined.push_back({strings[symbol.st_name], version == versions.end() ? "" : version->second});
    } else if (bind != STB_LOCAL && (visibility == STV_DEFAULT || visibility == STV_PROTECTED)) {
      file.exported.push_back(strings[symbol.st_name]);
    }
  }
}

}  // namespace

ElfFile read_elf(std::string_view bytes) {
  Image image(bytes);
  if (bytes.substr(0, SELFMAG) != ELFMAG) throw ElfError("it does not begin as an ELF file does");
  const auto header = image.at<Elf64_Ehdr>(0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    throw ElfError("it is not of 64 bits, low byte first");
  if (header.e_phentsize != sizeof(Elf64_Phdr)) throw ElfError("its program headers have an unknown size");
  ElfFile file;
  file.machine = header.e_machine;
  file.type = header.e_type;
  Elf64_Phdr found{};
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = image.at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD) image.map(segment);
    if (segment.p_type == PT_DYNAMIC) found = segment;
  }
  if (found.p_type != PT_DYNAMIC) throw ElfError("it has no dynamic table");
  const Dynamic dynamic = read_dynamic(image, found);
  const Strings strings(image, dynamic);
  for (const uint64_t at : dynamic.needed) file.needed.push_back(strings[at]);
  for (const int64_t tag : {DT_RPATH, DT_RUNPATH})
    if (dynamic.has(tag)) file.run_path = strings[dynamic.get(tag)];
  read_symbols(image, dynamic, strings, file);
  return file;
}

}  // namespace mortise
