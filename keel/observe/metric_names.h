// The names of a step's metrics in one table: constant, name, what a person should know about it.
// Names are verl's; those marked "Keel" exist only here. Data-dependent families are not listed:
//   timing_s/<stage>                                      seconds of a stage of the step
//   val-core/<source>/<variable>/<mean@N|best@N/mean|..>  validation, also val-aux/...
#pragma once

#include <span>
#include <string_view>

namespace keel::metric {

// X(constant, name, help)
#define KEEL_METRICS(X)                                                                         \
  X(kScoreMean, "critic/score/mean", "score of the task's reward rule, mean over the answers")  \
  X(kScoreMax, "critic/score/max", "highest score of the step")                                 \
  X(kScoreMin, "critic/score/min", "lowest score of the step")                                  \
  X(kRewardMean, "critic/rewards/mean", "reward trained on (score and penalties), mean")        \
  X(kRewardMax, "critic/rewards/max", "highest reward of the step")                             \
  X(kRewardMin, "critic/rewards/min", "lowest reward of the step")                              \
  X(kAdvantageMean, "critic/advantages/mean", "advantage, mean over the answer tokens")         \
  X(kAdvantageMax, "critic/advantages/max", "highest advantage")                                \
  X(kAdvantageMin, "critic/advantages/min", "lowest advantage")                                 \
  X(kReturnMean, "critic/returns/mean", "return, mean over the answer tokens")                  \
  X(kReturnMax, "critic/returns/max", "highest return")                                         \
  X(kReturnMin, "critic/returns/min", "lowest return")                                          \
  X(kAccuracy, "training/accuracy", "share of the answers that are right, 0..1 (Keel)")         \
  X(kZeroStdGroups, "training/zero_std_groups",                                                 \
    "share of the groups whose answers all got the same reward: no gradient, 0..1 (Keel)")      \
  X(kGenBatches, "training/gen_batches", "generation rounds of dynamic sampling (Keel)")        \
  X(kDroppedGroups, "training/dropped_groups", "groups dropped by dynamic sampling (Keel)")     \
  X(kSkippedUpdates, "training/skipped_updates",                                                \
    "optimizer updates of this step skipped because the gradient was not finite (Keel)")        \
  X(kExact, "training/exact", "1 if sampling and training promise equal bits, else 0 (Keel)")   \
  X(kRolloutDiffMax, "training/rollout_probs_diff_max",                                         \
    "largest difference of a token's probability, sampling against training; 0 = exact")        \
  X(kRolloutDiffMean, "training/rollout_probs_diff_mean",                                       \
    "mean difference of a token's probability, sampling against training")                      \
  X(kRolloutDiffStd, "training/rollout_probs_diff_std", "its standard deviation")               \
  X(kRolloutDiffValid, "training/rollout_probs_diff_valid", "1 if the difference was measured") \
  X(kRolloutPearson, "training/rollout_actor_probs_pearson_corr",                               \
    "correlation of token probabilities, sampling against training")                            \
  X(kGlobalStep, "training/global_step", "the step")                                            \
  X(kEpoch, "training/epoch", "passes over the training data")                                  \
  X(kPgLoss, "actor/pg_loss", "policy-gradient loss")                                           \
  X(kClipFraction, "actor/pg_clipfrac", "share of the tokens whose ratio was clipped, 0..1")    \
  X(kClipFractionLower, "actor/pg_clipfrac_lower", "share clipped by the dual clip, 0..1")      \
  X(kPpoKl, "actor/ppo_kl", "KL of the new policy to the one that sampled, per token")          \
  X(kEntropy, "actor/entropy", "entropy of the next-token distribution, nats per token")        \
  X(kKlLoss, "actor/kl_loss", "KL to the reference model, per token")                           \
  X(kKlCoef, "actor/kl_coef", "its weight in the loss")                                         \
  X(kGradNorm, "actor/grad_norm", "norm of the gradient before clipping")                       \
  X(kLearningRate, "actor/lr", "learning rate used by this step")                               \
  X(kResponseMean, "response_length/mean", "tokens of an answer, mean")                         \
  X(kResponseMax, "response_length/max", "longest answer, tokens")                              \
  X(kResponseMin, "response_length/min", "shortest answer, tokens")                             \
  X(kResponseP10, "response_length/p10", "a tenth of the answers is no longer, tokens (Keel)")  \
  X(kResponseP50, "response_length/p50", "half of the answers is no longer, tokens (Keel)")     \
  X(kResponseP90, "response_length/p90", "nine tenths are no longer, tokens (Keel)")            \
  X(kResponseClip, "response_length/clip_ratio", "share of the answers cut at the limit, 0..1") \
  X(kAborted, "response/aborted_ratio", "share of the answers that were aborted, 0..1")         \
  X(kPromptMean, "prompt_length/mean", "tokens of a prompt, mean")                              \
  X(kPromptMax, "prompt_length/max", "longest prompt, tokens")                                  \
  X(kPromptMin, "prompt_length/min", "shortest prompt, tokens")                                 \
  X(kPromptClip, "prompt_length/clip_ratio", "share of the prompts at the limit, 0..1")         \
  X(kSeqlenMean, "global_seqlen/mean", "tokens of a rank's sequences, mean")                    \
  X(kSeqlenMin, "global_seqlen/min", "fewest tokens of a rank, dealt in order")                 \
  X(kSeqlenMax, "global_seqlen/max", "most tokens of a rank, dealt in order")                   \
  X(kSeqlenDiff, "global_seqlen/minmax_diff", "their difference")                               \
  X(kSeqlenBalancedMin, "global_seqlen/balanced_min", "fewest tokens of a rank, balanced")      \
  X(kSeqlenBalancedMax, "global_seqlen/balanced_max", "most tokens of a rank, balanced")        \
  X(kTimeStep, "timing_s/step", "seconds of the whole step")                                    \
  X(kTimeGen, "timing_s/gen", "seconds of generation")                                          \
  X(kTimeReward, "timing_s/reward", "seconds of scoring")                                       \
  X(kTimeOldLogProb, "timing_s/old_log_prob", "seconds of the old log-prob pass")               \
  X(kTimeRef, "timing_s/ref", "seconds of the reference model")                                 \
  X(kTimeAdv, "timing_s/adv", "seconds of the advantages")                                      \
  X(kTimeUpdateActor, "timing_s/update_actor", "seconds of forward, backward and optimizer")    \
  X(kTimeTesting, "timing_s/testing", "seconds of validation")                                  \
  X(kTimeSaveCheckpoint, "timing_s/save_checkpoint", "seconds of saving a checkpoint")          \
  X(kTimeDump, "timing_s/dump_rollout_generations", "seconds of writing the samples")           \
  X(kTotalTokens, "perf/total_num_tokens", "tokens of the step, prompts and answers")           \
  X(kTimePerStep, "perf/time_per_step", "seconds of the whole step")                            \
  X(kThroughput, "perf/throughput", "tokens of the step per second and device")                 \
  X(kGenThroughput, "perf/gen_tokens_per_s", "answer tokens generated per second (Keel)")       \
  X(kMfuActor, "perf/mfu/actor", "share of the machine's peak reached in the update, 0..1")     \
  X(kDeviceMemory, "perf/max_memory_allocated_gb", "most device memory used so far, GB")        \
  X(kCpuMemory, "perf/cpu_memory_used_gb", "memory of the process, GB")

#define KEEL_METRIC_CONSTANT(constant, name, help) inline constexpr char constant[] = name;
KEEL_METRICS(KEEL_METRIC_CONSTANT)
#undef KEEL_METRIC_CONSTANT

// Prefixes of the families above, and the histogram that the report shows.
inline constexpr char kTimingPrefix[] = "timing_s/";
inline constexpr char kValidationPrefix[] = "val-core/";
inline constexpr char kResponseLength[] = "response_length";

struct Info {
  const char* name;
  const char* help;
};
std::span<const Info> all();

// The help of a metric, "" for a name outside the table.
std::string_view help(std::string_view name);

}  // namespace keel::metric
