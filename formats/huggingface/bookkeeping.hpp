// Keys that every config.json of transformers may have and that say nothing about the architecture: globs.
#pragma once

namespace mortise::huggingface {

// Names of classes, by number and the other way round.
inline constexpr const char *kIdToLabel = "id2label", *kLabelToId = "label2id";

inline constexpr const char* kBookkeeping[] = {
    // where it comes from and for what
    "_commit_hash", "_name_or_path", "architectures", "finetuning_task", "model_type", "parameters_differ",
    "parameters_merge", "prefix", "problem_type", "task_specific_params", "tokenizer_class", "transformers_version",
    // names of classes
    "_num_labels", kIdToLabel, kLabelToId, "num_labels",
    // how it is computed and what is given back
    "_attn_implementation*", "attn_implementation", "chunk_size_feed_forward", "dtype", "gradient_checkpointing",
    "output_attentions", "output_hidden_states", "output_past", "output_scores", "return_dict",
    "return_dict_in_generate", "torch_dtype", "torchscript", "use_bfloat16", "use_cache",
    // what parameters that no file brings start from
    "initializer_factor", "initializer_range",
    // special tokens
    "*_token_id", "begin_suppress_tokens", "suppress_tokens",
    // how text is drawn
    "bad_words_ids", "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "length_penalty", "max_length", "max_new_tokens", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "remove_invalid_values",
    "repetition_penalty", "temperature", "top_k", "top_p", "typical_p"};

}  // namespace mortise::huggingface
