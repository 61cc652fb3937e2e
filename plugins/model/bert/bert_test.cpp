#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"
