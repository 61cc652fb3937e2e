// Which tables and keys there are, and what people mean who write another: the texts of unknown_key, unknown_table,
// unknown_plugin, value_for_table.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/manifest/schema.hpp"

namespace mortise {

class Vocabulary {
 public:
  explicit Vocabulary(const ManifestRequest& request);

  bool is_family(const std::string& name) const { return core_schema().is_family(name) || !ids_of(name).empty(); }
  bool is_core_table(const std::string& name) const { return core_schema().tables.contains(name) && !is_family(name); }
  const PluginSchema* plugin(const std::string& id) const;
  // `table` is a core table, a family, a plugin's id, or "parameters.NAME". Keys that the host reads in plugins' tables
  // count.
  const KeySchema* key(const std::string& table, const std::string& key) const;
  // A key of a provider's family that the provider may say for itself, if it is not the only one.
  const KeySchema* family_key(const std::string& id, const std::string& key) const;

  // `table` is "" for a key that stands before every table.
  Diagnostic unknown_key(const std::string& table, const std::string& key, const TomlNode& value,
                         const Position& at) const;
  Diagnostic unknown_table(const std::string& name, const Position& at) const;
  // `flag`: "--use ", or "" in a file.
  Diagnostic unknown_plugin(const std::string& id, const std::string& flag, const Position& at) const;
  // Keys that are called `name` here or elsewhere: "optimizer.lr".
  std::vector<std::string> keys_called(const std::string& name) const;
  // What to type on the command line where `name` was set, or `value` given to a flag of that name; nothing if nobody
  // knows the name.
  std::vector<std::string> typed_for(const std::string& name, const std::string& value) const;
  // What there is to say of a name from elsewhere that is not one key here.
  std::vector<std::string> said_of(const std::string& name) const;
  // A family, or one plugin of it, written as a key: precision = "…".
  Diagnostic value_for_table(const std::string& table, const std::string& key, const TomlNode& value,
                             const Position& at) const;

 private:
  const TableSchema* schema_of(const std::string& table) const;
  std::vector<std::string> ids_of(const std::string& family) const;
  std::vector<std::string> ids_called(const std::string& name) const;
  struct Foreign {
    std::vector<std::string> texts;
    bool is_name = false;  // the one text is TABLE.KEY or FAMILY.NAME
  };
  Foreign foreign_names(std::string_view table, std::string_view name) const;
  Foreign foreign_key(const std::string& table, const std::string& key) const;
  std::string table_for(const std::string& family, const TomlNode& value) const;
  std::string family_member(const std::string& family, const std::string& name) const;
  std::string elsewhere(const std::string& table, const std::string& key) const;
  std::vector<std::string> foreign(const std::string& table, const std::string& key, const TomlNode& value) const;

  const ManifestRequest& request_;
  const std::map<std::string, PluginSchema>& catalogue_;
  TomlTable foreign_;  // foreign_names.toml
};

// Of a family's key that nobody stated, what its only provider has by itself.
Value family_default(const Manifest& m, const std::string& family, const std::string& key);

}  // namespace mortise
