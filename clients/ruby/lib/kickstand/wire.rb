# frozen_string_literal: true

require "date"
require "json"
require "time"

module Kickstand
  # The default of optional arguments. An argument with this value is not sent, while +nil+ is
  # sent as null, which clears a member.
  OMIT = Object.new
  def OMIT.inspect = "Kickstand::OMIT"
  OMIT.freeze

  # Converts Ruby values to JSON, queries and paths.
  # @api private
  module Wire
    # Bytes that a path segment may contain as they are (RFC 3986, unreserved).
    RESERVED = /[^A-Za-z0-9\-._~]/n
    private_constant :RESERVED

    module_function

    # @param value [Object] a body, or part of one
    # @return [Object] the same as Hash, Array, String, Integer, Float, true, false or nil
    # @raise [ArgumentError] if the value has no JSON form
    def encode(value)
      case value
      when nil, true, false, Integer then value
      when String then text(value)
      when Symbol then text(value.name)
      when Time, Date then time(value)
      when Hash then hash(value)
      when Array then value.map { |item| encode(item) }
      when Record then value.raw
      when Attachment then value.to_h
      when Numeric then number(value)
      else
        raise ArgumentError, "a #{value.class} cannot be sent" unless value.respond_to?(:to_time)

        time(value.to_time)
      end
    end

    # @param value [Hash] members by name; those with the value {OMIT} are left out
    # @return [Hash{String => Object}]
    def hash(value)
      value.each_with_object({}) do |(name, item), out|
        out[text(name.to_s)] = encode(item) unless OMIT.equal?(item)
      end
    end

    # @param value [Time, Date, DateTime]
    # @return [String] RFC 3339 in UTC with milliseconds; of a Date, the date
    def time(value)
      return value.iso8601 if value.instance_of?(Date)

      value.to_time.getutc.iso8601(3)
    end

    # @param value [Numeric] for example a BigDecimal
    # @return [Integer, Float]
    def number(value)
      raise ArgumentError, "#{value} cannot be sent" unless value.real? && value.finite?

      float = value.to_f
      raise ArgumentError, "#{value} is too large" unless float.finite?
      return float if value.is_a?(Float)

      integer = value.to_i
      integer == value ? integer : float
    end

    # @param value [String]
    # @return [String] in UTF-8
    # @raise [ArgumentError] if it is not text
    def text(value)
      utf8 = value.encoding == Encoding::BINARY ? value.dup.force_encoding(Encoding::UTF_8) : value.encode(Encoding::UTF_8)
      raise ArgumentError, "a text is not valid UTF-8" unless utf8.valid_encoding?

      utf8
    rescue EncodingError
      raise ArgumentError, "a text cannot be converted to UTF-8"
    end

    # @param params [Hash{String => Object}] values by name; nil is left out, an array is joined by
    #   commas, or repeated if the name ends in []
    # @return [String] with the question mark; empty without parameters
    def query(params)
      pairs = params.compact.flat_map do |name, value|
        next Array(value).map { |item| [name, scalar(item)] } if name.end_with?("[]")

        [[name, value.is_a?(Array) ? list(value) : scalar(value)]]
      end
      pairs.empty? ? "" : "?#{pairs.map { |name, value| "#{escape(name)}=#{escape(value)}" }.join("&")}"
    end

    # @param values [Array]
    # @return [String]
    # @raise [ArgumentError] if a value contains a comma
    def list(values)
      values.map do |value|
        text = scalar(value)
        raise ArgumentError, "a value of a list contains a comma: #{text}" if text.include?(",")

        text
      end.join(",")
    end

    # @param value [Object] a query parameter
    # @return [String]
    def scalar(value)
      encoded = encode(value)
      raise ArgumentError, "a #{value.class} cannot be a query parameter" if [NilClass, Hash, Array].any? { |type| encoded.is_a?(type) }

      encoded.to_s
    end

    # @param value [String, Symbol, Integer] one segment of a path
    # @return [String]
    # @raise [ArgumentError] if the segment is empty or would change the path
    def segment(value)
      raise ArgumentError, "an id is a String, not #{value.class}" unless [String, Symbol, Integer].any? { |type| value.is_a?(type) }

      text = scalar(value)
      raise ArgumentError, "an id is empty" if text.empty?
      raise ArgumentError, "#{text.inspect} is not an id" if [".", ".."].include?(text)

      escape(text)
    end

    # @param text [String]
    # @return [String] percent-encoded
    def escape(text) = text.b.gsub(RESERVED) { |byte| format("%%%02X", byte.ord) }.force_encoding(Encoding::UTF_8)

    # @param text [String] JSON
    # @return [Object] frozen
    # @raise [JSON::ParserError] if the text is not JSON in UTF-8
    def parse(text)
      utf8 = text.encoding == Encoding::UTF_8 ? text : text.dup.force_encoding(Encoding::UTF_8)
      raise JSON::ParserError, "not UTF-8" unless utf8.valid_encoding?

      JSON.parse(utf8, freeze: true)
    end
  end
end
