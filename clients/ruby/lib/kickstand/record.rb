# frozen_string_literal: true

require "json"
require_relative "type"

module Kickstand
  # An immutable object of an answer, with a reader for each member that this version of the
  # library knows.
  #
  # Two records are equal if they have the same class and the same JSON. Records can be matched by
  # patterns:
  #
  #   case client.tickets.get(id)
  #   in {status: "open", customer: {email: String => email}} then remind(email)
  #   in {status: "closed"} then nil
  #   end
  class Record
    class << self
      # @return [Hash{Symbol => Proc, nil}] the known members with their conversions
      # @api private
      def members = @members ||= {}

      private

      # Declares a member and its reader.
      def member(name, type = nil, reader: name)
        members[name] = type
        define_method(reader) { member_value(name) }
      end
    end

    # @return [Hash{String => Object}] the object as the server sent it, frozen, with members that this
    #   version of the library does not know
    attr_reader :raw

    # @param raw [Hash{String => Object}] as parsed from JSON
    def initialize(raw)
      @raw = frozen_throughout?(raw) ? raw : JSON.parse(JSON.generate(raw), freeze: true)
      freeze
    end

    # @param name [Symbol, String] a member's name
    # @return [Object] its value; nil if there is none
    def [](name) = member_value(name.to_sym)

    # @return [Hash{Symbol => Object}] the known members, with nested records as Hash
    def to_h = self.class.members.to_h { |name, _| [name, plain_value(member_value(name))] }

    # @return [String] the JSON of {#raw}
    def to_json(*state) = @raw.to_json(*state)

    # @param names [Array<Symbol>, nil] nil for all
    # @return [Hash{Symbol => Object}] the known members of these names
    def deconstruct_keys(names)
      known = self.class.members.keys
      (names ? names & known : known).to_h { |name| [name, member_value(name)] }
    end

    # @param other [Object]
    def ==(other) = other.instance_of?(self.class) && other.raw == @raw
    alias eql? ==

    # @return [Integer]
    def hash = [self.class, @raw].hash

    # @return [String]
    def inspect = "#<#{self.class} #{deconstruct_keys(nil).map { |name, value| "#{name}=#{value.inspect}" }.join(", ")}>"
    alias to_s inspect

    # @return [Hash{String => Object}]
    # @api private
    def marshal_dump = @raw

    # @api private
    def marshal_load(raw) = initialize(raw)

    private

    # The generator knows the names of these methods, which no reader may replace.

    # @return [Object] the value of a member's reader
    def member_value(name)
      value = @raw[name.name]
      type = self.class.members[name]
      type && !value.nil? ? type.call(value) : value
    end

    def plain_value(value)
      case value
      when Record then value.to_h
      when Array then value.map { |item| plain_value(item) }
      when Hash then value.transform_values { |item| plain_value(item) }
      else value
      end
    end

    def frozen_throughout?(value)
      case value
      when Hash then value.frozen? && value.each_value.all? { |item| frozen_throughout?(item) }
      when Array then value.frozen? && value.all? { |item| frozen_throughout?(item) }
      else value.frozen?
      end
    end
  end
end
