// Whose head a file is: EAGLE-2 heads carry copies of their teacher's embedding, sometimes of its output matrix. They
// are of no use but this one, since heads of other teachers may have the same shapes and would guess badly.
#pragma once

#include <string_view>

#include "device/device.h"
#include "format/tensor_info.h"

namespace espalier {

// A matrix of the teacher as the device has it.
struct TeacherMatrix {
  const Weight* weight = nullptr;  // [vocabulary, hidden]
  DType precision = DType::f32;    // the coarsest type that its values went through
};

// Throws InputError where some rows of `copy` differ from the teacher's by more than rounding to these types explains,
// where the copy has fewer rows, or another width. `name`: as the file spells it.
void check_rows_of_teacher(Device& device, const TensorInfo& copy, const TeacherMatrix& teacher, std::string_view file,
                           std::string_view name);

}  // namespace espalier
