#include "trace/trace_frame.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <memory>

#include "base/error.h"

namespace espalier {
namespace {

constexpr int kLevel = 3;  // zstd's own default: written between turns, at the speed of the disk

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

}  // namespace

std::string compress_frame(std::string_view text) {
  check(text.size() <= kMostFrameBytes, "a frame of {} bytes, expected at most {}", text.size(), kMostFrameBytes);
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress2(context.get(), frame.data(), frame.size(), text.data(), text.size());
  check(!ZSTD_isError(size), "zstd: {}", ZSTD_getErrorName(size));
  frame.resize(size);
  return frame;
}

std::optional<std::size_t> frame_size(std::span<const std::byte> bytes, std::string_view where) {
  const std::size_t size = ZSTD_findFrameCompressedSize(bytes.data(), bytes.size());
  if (!ZSTD_isError(size)) return size;
  if (ZSTD_getErrorCode(size) == ZSTD_error_srcSize_wrong) return std::nullopt;
  input_error("{}: expected zstd: {}", where, ZSTD_getErrorName(size));
}

std::string decompress_frame(std::span<const std::byte> frame, std::string_view where) {
  const unsigned long long told = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (told == ZSTD_CONTENTSIZE_ERROR || told == ZSTD_CONTENTSIZE_UNKNOWN)
    input_error("{}: expected a zstd frame that says its size", where);
  if (told > kMostFrameBytes) input_error("{}: {} bytes, expected at most {}", where, told, kMostFrameBytes);
  std::string text(static_cast<std::size_t>(told), '\0');
  const std::size_t size = ZSTD_decompress(text.data(), text.size(), frame.data(), frame.size());
  if (ZSTD_isError(size)) input_error("{}: damaged: {}", where, ZSTD_getErrorName(size));
  text.resize(size);
  return text;
}

}  // namespace espalier
