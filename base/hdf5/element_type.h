// The element types of columns and arrays in files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ulpscope {

enum class ElementType : uint8_t { u8, u32, i32, u64, i64, f32, f64 };
inline constexpr ElementType kElementTypes[] = {ElementType::u8,  ElementType::u32, ElementType::i32, ElementType::u64,
                                                ElementType::i64, ElementType::f32, ElementType::f64};

constexpr size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::u8:
      return 1;
    case ElementType::u32:
    case ElementType::i32:
    case ElementType::f32:
      return 4;
    default:
      return 8;
  }
}

constexpr const char* name_of(ElementType type) {
  constexpr const char* kNames[] = {"uint8", "uint32", "int32", "uint64", "int64", "float32", "float64"};
  return kNames[static_cast<size_t>(type)];
}

}  // namespace ulpscope
