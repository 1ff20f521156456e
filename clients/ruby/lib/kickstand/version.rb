# frozen_string_literal: true

module Kickstand
  # The version of this library.
  VERSION = "0.1.0"
end
