#include "testing/ways.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "decode/eagle_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

std::unique_ptr<Drafter> make_drafter(const Way& way, const Company& company, KvCache& cache, int sequences,
                                      const TreeOptions& tree) {
  const StepForm form{way.attention, MaskForm::dense};
  if (way.drafter == "ngram") return std::make_unique<NgramDrafter>();
  if (way.drafter == "hostile")
    return std::make_unique<HostileDrafter>(7, static_cast<std::int32_t>(company.teacher.config().vocabulary));
  if (way.drafter == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10, sequences);
  if (const EagleHead* head = company.eagle(way.drafter))
    return std::make_unique<EagleDrafter>(
        *head, cache,
        EagleDrafterOptions{
            .context = kWayContext, .kv_type = way.kv_type, .form = form, .tree = tree, .sequences = sequences});
  return std::make_unique<ModelDrafter>(
      company.draft_model(), cache,
      ModelDrafterOptions{
          .context = kWayContext, .kv_type = way.kv_type, .form = form, .tree = tree, .sequences = sequences});
}

TreeOptions tree_of(const Way& way) {
  TreeOptions tree{.shape = way.shape, .nodes = 12, .depth = 5, .expand = 3};
  if (way.shape == TreeShape::fixed)
    tree.choices = ChoiceTree({{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}, {}, "choices");
  return tree;
}

// The logits of every position of a text.
std::vector<std::vector<float>> scores(const Transformer& model, const Tokens& text) {
  DecoderOptions options;
  options.context = kWayContext;
  Batch batch(model, options);
  std::vector<std::vector<float>> rows;
  batch.score(text,
              [&](std::int64_t, std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); });
  return rows;
}

}  // namespace

Tokens prompt_of(const Transformer& model) {
  Tokens prompt;
  const std::int64_t vocabulary = model.config().vocabulary;
  for (std::int64_t i = 0; i < 135; ++i)
    prompt.push_back(static_cast<std::int32_t>((i % 9 * 31 + i / 50) % vocabulary));
  return prompt;
}

Tokens answer(const Company& company, const Way& way) {
  return ended_answer(company, way).result.tokens;
}

EndedAnswer ended_answer(const Company& company, const Way& way) {
  DecoderOptions options;
  options.context = kWayContext;
  options.kv_type = way.kv_type;
  options.attention = way.attention;
  Speculation speculation;
  speculation.tree = tree_of(way);
  if (way.drafter != "none")
    speculation.drafters = [&](KvCache& cache, int sequences) {
      DrafterSet set;
      set.push_back(make_drafter(way, company, cache, sequences, speculation.tree));
      return set;
    };
  Batch batch(company.teacher, options, speculation);
  const Tokens prompt = prompt_of(company.teacher);
  EndedAnswer ended;
  GenerateRequest request{.prompt = prompt, .options = {.max_tokens = way.tokens}};
  request.events.on_end = keep_end(batch.device(), ended);
  batch.generate({&request, 1});
  return ended;
}

void expect_equal_outside_near_ties(const Tokens& one, const Tokens& other, const Transformer& on_npu,
                                    const Transformer& on_cpu, Agreement& agreement) {
  if (one == other) {
    ++agreement.equal;
    return;
  }
  const auto at =
      static_cast<std::size_t>(std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin());
  ASSERT_LT(at, std::min(one.size(), other.size()));
  Tokens text = prompt_of(on_cpu);
  text.insert(text.end(), one.begin(), one.begin() + static_cast<std::ptrdiff_t>(at));
  const auto exact = scores(on_cpu, text), near = scores(on_npu, text);
  float apart = 0, largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    apart = std::max(apart, largest_difference(exact[i], near[i]));
    for (float logit : exact[i]) largest = std::max(largest, std::fabs(logit));
  }
  const std::vector<float>& logits = exact.back();
  const float margin =
      std::fabs(logits[static_cast<std::size_t>(one[at])] - logits[static_cast<std::size_t>(other[at])]);
  agreement.margins.push_back(margin);
  EXPECT_LE(margin, 2 * apart) << "at token " << at;
  EXPECT_LT(apart, largest / 10) << "the devices' logits are far apart";
}

}  // namespace espalier::testing
