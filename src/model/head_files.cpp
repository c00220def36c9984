#include "model/head_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "format/safetensors.h"
#include "model/eagle_names.h"
#include "model/medusa_layout.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kMedusaFile = "medusa_lm_head.safetensors";
constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kGgufFile = "head-q8_0.gguf";
constexpr const char* kPickledIndex = "pytorch_model.bin.index.json";
constexpr const char* kUsualPickles[] = {"pytorch_model.bin", "medusa_lm_head.pt"};

bool is_present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// What train/convert.py reads.
bool is_pickle(const fs::path& path) {
  return path.extension() == ".bin" || path.extension() == ".pt";
}

// The text as one word of a shell command.
std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+=:,@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// `convertible` is what train/convert.py takes: a pickled file, or the folder of a sharded one.
[[noreturn]] void refuse_pickle(const fs::path& pickle, const fs::path& convertible) {
  input_error("{}: a pickle is not read, expected safetensors or GGUF; convert it with: python train/convert.py {}",
              pickle.string(), shell_word(convertible.string()));
}

struct FolderListing {
  std::vector<fs::path> safetensors, ggufs, pickles;  // by name
};

FolderListing list_folder(const fs::path& folder) {
  FolderListing listing;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") listing.safetensors.push_back(entry->path());
    if (entry->path().extension() == ".gguf") listing.ggufs.push_back(entry->path());
    if (is_pickle(entry->path())) listing.pickles.push_back(entry->path());
  }
  if (error) input_error("{}: cannot read this folder: {}", folder.string(), error.message());
  std::sort(listing.safetensors.begin(), listing.safetensors.end());
  std::sort(listing.ggufs.begin(), listing.ggufs.end());
  std::sort(listing.pickles.begin(), listing.pickles.end());
  return listing;
}

[[noreturn]] void refuse_pickles(const fs::path& folder, const FolderListing& listing) {
  if (is_present(folder / kPickledIndex)) refuse_pickle(folder / kPickledIndex, folder);
  for (const char* usual : kUsualPickles)
    if (is_present(folder / usual)) refuse_pickle(folder / usual, folder / usual);
  refuse_pickle(listing.pickles.front(), listing.pickles.front());
}

// A GGUF file, or what Safetensors opens: a file, or the folder itself where it knows the way.
fs::path find_weights(const fs::path& folder) {
  if (is_present(folder / kMedusaFile)) return folder / kMedusaFile;
  if (is_present(folder / kSingleFile)) return folder / kSingleFile;
  if (is_present(folder / kIndexFile)) return folder;
  const FolderListing listing = list_folder(folder);
  if (listing.safetensors.size() == 1) return listing.safetensors.front();
  if (listing.safetensors.empty() && is_present(folder / kGgufFile)) return folder / kGgufFile;
  if (listing.safetensors.empty() && listing.ggufs.size() == 1) return listing.ggufs.front();
  if (listing.safetensors.empty() && !listing.pickles.empty()) refuse_pickles(folder, listing);
  input_error("{}: no weights, expected {}, {} or {} in this folder, got {} other .safetensors files", folder.string(),
              kSingleFile, kIndexFile, kMedusaFile, listing.safetensors.size());
}

void read_head_config(const fs::path& file, HeadFiles& files) {
  if (!is_present(file)) input_error("{}: no such file, expected the head's configuration", file.string());
  files.config_file = file.string();
  const Json config = read_json_file(file);
  if (!config.is_object()) input_error("{}: expected a JSON object, got {}", files.config_file, config.type_name());
  files.config = config.dump();
}

void open_gguf(const fs::path& path, HeadFiles& files) {
  auto source = std::make_unique<Gguf>(path);
  files.gguf = source.get();
  files.tensors = std::move(source);
  files.config_file = path.string();
}

const Json* find_in(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A value of the config: at the top, in what speculators nests, or among EAGLE's own switches; nullptr: none, or null.
const Json* find_setting(const Json& config, const char* key) {
  if (const Json* value = find_in(config, key)) return value;
  for (const char* nested : {"transformer_layer_config", "eagle_config"})
    if (const Json* object = find_in(config, nested))
      if (const Json* value = find_in(*object, key)) return value;
  return nullptr;
}

// What shows a head that drafts all its tokens at once; empty: nothing.
std::string parallel_sign(const Json& config, const EagleNames& names) {
  if (names.has("mask_hidden")) return "mask_hidden";
  for (const char* key : {"mask_token_id", "pard_token", "ptd_token_id"})
    if (find_setting(config, key)) return key;
  const Json* architectures = find_setting(config, "architectures");
  if (!architectures || !architectures->is_array() || architectures->empty() || !architectures->front().is_string())
    return "";
  const auto& first = architectures->front().get_ref<const std::string&>();
  std::string lower = first;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower.starts_with("peagle") ? in_quotes(first) : "";
}

constexpr std::string_view kExpected = "an EAGLE-2 head, an EAGLE-3 head or Medusa heads";

// Tensors that relatives of EAGLE-2 have and it has not, with what they show.
struct Relative {
  std::string_view tensor;
  std::string_view network;
};
constexpr Relative kRelatives[] = {
    {"enorm.weight", "a head with norms on both halves"},
    {"hnorm.weight", "a head with norms on both halves"},
    {"embedding_layernorm.weight", "a head of speculators with layernorms"},
    {"pre_lm_head_layernorm.weight", "a head of speculators with layernorms"},
    {"layers.0.input_layernorm.weight", "a head with a norm before its first layer"},
    {"norm.weight", "a head with a norm before its output matrix"},
    {"token_map", "a head with a vocabulary of its own"},
    {"d2t", "a head with a vocabulary of its own"},
    {"t2d", "a head with a vocabulary of its own"},
};

constexpr std::string_view kPredictionModules[] = {"eh_proj.weight", "mtp.fc.weight", "input_proj.weight"};

void refuse_prediction_modules(const EagleNames& names, std::string_view where) {
  for (std::string_view tensor : kPredictionModules)
    if (names.has(tensor))
      input_error("{}: {}: a module for multi-token prediction (MTP) is not supported, expected {}", where,
                  names.spell(tensor), kExpected);
}

void refuse_relatives(const EagleNames& names, std::string_view where) {
  for (const auto& [tensor, network] : kRelatives)
    if (names.has(tensor))
      input_error("{}: {}: {} is not supported, expected {}", where, names.spell(tensor), network, kExpected);
}

void refuse_parallel_drafting(const Json& config, const EagleNames& names, std::string_view where) {
  if (const std::string sign = parallel_sign(config, names); !sign.empty())
    input_error("{}: {}: a P-EAGLE head (parallel drafting) is not supported, expected {}", where, sign, kExpected);
}

bool has_shape(const TensorInfo* tensor, std::int64_t columns) {
  return tensor && tensor->shape.size() == 2 && tensor->shape[1] == columns;
}

constexpr std::string_view kQuery = "layers.0.self_attn.q_proj.weight";

// Only EAGLE-3 has a norm of the feature. In EAGLE-2 fc takes [token; feature], and its output, as wide as either, goes
// into the layer as it is.
HeadKind classify_eagle(const HeadFiles& files) {
  const std::string_view where = files.tensors->description();
  const EagleNames names(*files.tensors, false);
  const Json config = parse_json(files.config, files.config_file);
  refuse_parallel_drafting(config, names, where);
  const TensorInfo* fc = names.find("fc.weight");
  const std::int64_t hidden = fc && !fc->shape.empty() ? fc->shape[0] : 0;
  const TensorInfo* query = names.find(kQuery);
  const bool normed = names.has("layers.0.hidden_norm.weight");
  const bool second = !normed && (has_shape(fc, 2 * hidden) || (fc && has_shape(query, hidden)));
  const Json* aux = find_setting(config, "use_aux_hidden_state");
  if (!second && aux && *aux == false)
    input_error("{}: use_aux_hidden_state: expected true, got false (a head on the last hidden state alone)",
                files.config_file);
  refuse_prediction_modules(names, where);
  if (!fc) input_error("{}: fc.weight is missing, expected {}", where, kExpected);
  if (normed) return HeadKind::eagle3;
  if (fc->shape.size() != 2)
    input_error("{}: {}: expected a matrix, got [{}]", where, fc->name, fmt::join(fc->shape, ", "));
  if (second) refuse_relatives(names, where);
  if (!second) input_error("{}: layers.0.hidden_norm.weight is missing, expected an EAGLE-3 head", where);
  if (!has_shape(query, hidden))
    input_error("{}: {}: expected a matrix of {} columns, as an EAGLE-2 head has behind fc.weight [{}]", where,
                names.spell(kQuery), hidden, fmt::join(fc->shape, ", "));
  return HeadKind::eagle2;
}

void refuse_other_architectures(const Gguf& gguf) {
  const std::string* architecture = gguf.string("general.architecture");
  if (!architecture || *architecture != "eagle3")
    input_error("{}: general.architecture: expected eagle3, got {}", gguf.description(),
                architecture ? in_quotes(*architecture) : "none");
}

std::vector<std::int64_t> parse_taps(std::string_view text, std::string_view value) {
  std::vector<std::int64_t> taps;
  const char *at = value.data(), *end = at + value.size();
  for (;; ++at) {
    std::int64_t boundary = 0;
    const auto [after, error] = std::from_chars(at, end, boundary);
    if (error != std::errc() || boundary < 0 || (after != end && *after != ','))
      input_error("head option {}: expected boundaries of the teacher such as taps=2,15,27", in_quotes(text));
    taps.push_back(boundary);
    if (at = after; at == end) return taps;
  }
}

double parse_theta(std::string_view text, std::string_view value) {
  double theta = 0;
  const auto [after, error] = std::from_chars(value.data(), value.data() + value.size(), theta);
  if (error != std::errc() || after != value.data() + value.size() || !std::isfinite(theta) || theta <= 0)
    input_error("head option {}: expected a number above 0 such as rope_theta=1e6", in_quotes(text));
  return theta;
}

bool parse_switch(std::string_view text, std::string_view value) {
  if (value != "true" && value != "false") input_error("head option {}: expected true or false", in_quotes(text));
  return value == "true";
}

template <typename Value>
void set_once(std::optional<Value>& option, std::string_view text, Value value) {
  if (option) input_error("head option {}: given twice", in_quotes(text));
  option = std::move(value);
}

}  // namespace

HeadFiles open_head(const fs::path& path) {
  HeadFiles files;
  files.path = path;
  files.folder = path.parent_path();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) input_error("{}: no such file or folder, expected a draft head", path.string());
  if (fs::is_directory(path, ignored)) {
    const fs::path weights = find_weights(path);
    files.folder = path;
    if (weights.extension() == ".gguf") {
      open_gguf(weights, files);
      return files;
    }
    read_head_config(path / "config.json", files);
    files.tensors = std::make_unique<Safetensors>(weights);
  } else if (is_pickle(path)) {
    refuse_pickle(path, path);
  } else if (path.extension() == ".safetensors") {
    read_head_config(path.parent_path() / "config.json", files);
    files.tensors = std::make_unique<Safetensors>(path);
  } else {
    open_gguf(path, files);
  }
  return files;
}

std::string_view name(HeadKind kind) {
  if (kind == HeadKind::medusa) return "medusa";
  return kind == HeadKind::eagle3 ? "eagle3" : "eagle2";
}

HeadKind classify_head(const HeadFiles& files) {
  if (files.gguf) {
    refuse_other_architectures(*files.gguf);
    return HeadKind::eagle3;
  }
  if (has_medusa_names(*files.tensors)) {
    refuse_other_medusa(*files.tensors);
    return HeadKind::medusa;
  }
  return classify_eagle(files);
}

void parse_head_option(std::string_view text, HeadOptions& options) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  if (name == "taps") {
    set_once(options.taps, text, parse_taps(text, value));
  } else if (name == "rope_theta") {
    set_once(options.rope_theta, text, parse_theta(text, value));
  } else if (name == "norm_output") {
    set_once(options.norm_output, text, parse_switch(text, value));
  } else {
    input_error("head option {}: expected taps=N,N,N, rope_theta=NUMBER or norm_output=true|false", in_quotes(text));
  }
}

}  // namespace espalier
