#include "keel/data/arrow_json.h"

#include <fmt/format.h>

namespace keel {
namespace {

OrderedJson text(std::string_view s, const std::string& path, std::vector<Issue>& issues) {
  if (is_utf8(s)) return std::string(s);
  issues.push_back({"encoding", FindingLevel::kError, path, "the string is not UTF-8"});
  return "";
}

OrderedJson list(const arrow::Array& values, int64_t begin, int64_t end, const std::string& path,
                 std::vector<Issue>& issues) {
  auto out = OrderedJson::array();
  for (int64_t i = begin; i < end; ++i) {
    out.push_back(to_json(values, i, fmt::format("{}[{}]", path, i - begin), issues));
  }
  return out;
}

OrderedJson binary(std::string_view s) {
  return OrderedJson::binary(std::vector<uint8_t>(s.begin(), s.end()));
}

template <class ArrayType>
const ArrayType& as(const arrow::Array& a) {
  return static_cast<const ArrayType&>(a);
}

template <class ListType>
OrderedJson list_at(const arrow::Array& a, int64_t i, const std::string& path,
                    std::vector<Issue>& issues) {
  const auto& l = as<ListType>(a);
  return list(*l.values(), l.value_offset(i), l.value_offset(i) + l.value_length(i), path, issues);
}

OrderedJson struct_at(const arrow::Array& a, int64_t i, const std::string& path,
                      std::vector<Issue>& issues) {
  const auto& s = as<arrow::StructArray>(a);
  auto out = OrderedJson::object();
  for (int f = 0; f < s.num_fields(); ++f) {
    const auto& name = s.struct_type()->field(f)->name();
    out[name] = to_json(*s.field(f), i, path.empty() ? name : path + "." + name, issues);
  }
  return out;
}

OrderedJson dictionary_at(const arrow::Array& a, int64_t i, const std::string& path,
                          std::vector<Issue>& issues) {
  const auto& d = as<arrow::DictionaryArray>(a);
  const int64_t index = d.GetValueIndex(i);
  if (index < 0 || index >= d.dictionary()->length()) {
    issues.push_back({"corrupt", FindingLevel::kError, path, "a dictionary index is out of range"});
    return nullptr;
  }
  return to_json(*d.dictionary(), index, path, issues);
}

}  // namespace

OrderedJson to_json(const arrow::Array& array, int64_t index, const std::string& path,
                    std::vector<Issue>& issues) {
  if (array.IsNull(index)) return nullptr;
  using T = arrow::Type;
  switch (array.type_id()) {
    case T::NA:
      return nullptr;
    case T::BOOL:
      return as<arrow::BooleanArray>(array).Value(index);
    case T::INT8:
      return as<arrow::Int8Array>(array).Value(index);
    case T::INT16:
      return as<arrow::Int16Array>(array).Value(index);
    case T::INT32:
      return as<arrow::Int32Array>(array).Value(index);
    case T::INT64:
      return as<arrow::Int64Array>(array).Value(index);
    case T::UINT8:
      return as<arrow::UInt8Array>(array).Value(index);
    case T::UINT16:
      return as<arrow::UInt16Array>(array).Value(index);
    case T::UINT32:
      return as<arrow::UInt32Array>(array).Value(index);
    case T::UINT64:
      return as<arrow::UInt64Array>(array).Value(index);
    case T::FLOAT:
      return as<arrow::FloatArray>(array).Value(index);
    case T::DOUBLE:
      return as<arrow::DoubleArray>(array).Value(index);
    case T::STRING:
      return text(as<arrow::StringArray>(array).GetView(index), path, issues);
    case T::LARGE_STRING:
      return text(as<arrow::LargeStringArray>(array).GetView(index), path, issues);
    case T::STRING_VIEW:
      return text(as<arrow::StringViewArray>(array).GetView(index), path, issues);
    case T::BINARY:
      return binary(as<arrow::BinaryArray>(array).GetView(index));
    case T::LARGE_BINARY:
      return binary(as<arrow::LargeBinaryArray>(array).GetView(index));
    case T::LIST:
      return list_at<arrow::ListArray>(array, index, path, issues);
    case T::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, index, path, issues);
    case T::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, index, path, issues);
    case T::STRUCT:
      return struct_at(array, index, path, issues);
    case T::DICTIONARY:
      return dictionary_at(array, index, path, issues);
    default: {
      const auto scalar = array.GetScalar(index);
      return scalar.ok() ? OrderedJson(printable((*scalar)->ToString(), 1000))
                         : OrderedJson(nullptr);
    }
  }
}

}  // namespace keel
