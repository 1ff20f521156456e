# frozen_string_literal: true

require "date"
require "time"

module Kickstand
  # Conversions from JSON values to the values of a {Record}'s readers. A value that does not fit,
  # which only a newer server could send, stays as it is.
  # @api private
  module Type
    # RFC 3339. A time without a zone is not one.
    TIMESTAMP = /\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\z/
    private_constant :TIMESTAMP

    # Converts a text to a Time.
    TIME = lambda do |value|
      value.is_a?(String) && TIMESTAMP.match?(value) ? Time.iso8601(value).freeze : value
    rescue ArgumentError
      value
    end

    # Converts a text to a Date.
    DATE = lambda do |value|
      value.is_a?(String) ? Date.iso8601(value) : value
    rescue ArgumentError
      value
    end

    module_function

    # @param name [Symbol] a class of this module, which may be defined later
    # @return [Proc] converts an object to a record
    def record(name)
      ->(value) { value.is_a?(Hash) ? Kickstand.const_get(name).new(value) : value }
    end

    # @param item [Proc]
    # @return [Proc] converts the items of an array
    def list(item)
      ->(value) { value.is_a?(Array) ? value.map { |each| item.call(each) unless each.nil? }.freeze : value }
    end

    # @param item [Proc]
    # @return [Proc] converts the values of an object
    def map(item)
      ->(value) { value.is_a?(Hash) ? value.transform_values { |each| item.call(each) unless each.nil? }.freeze : value }
    end
  end
end
