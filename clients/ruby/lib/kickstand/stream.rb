# frozen_string_literal: true

require_relative "errors"
require_relative "wire"

module Kickstand
  # Splits the pieces of a stream into lines and parses each as JSON.
  # @api private
  class Lines
    MAX_LINE = 64 << 20
    private_constant :MAX_LINE

    def initialize(pieces)
      @pieces = pieces
    end

    # @yieldparam value [Hash{String => Object}]
    # @raise [ConnectionError] if the last line does not end, or a line is not a JSON object
    def each
      rest = String.new
      @pieces.each do |piece|
        bytes = piece.b
        rest << bytes
        raise Error, "a line of the answer is larger than #{MAX_LINE >> 20} MiB" if rest.bytesize > MAX_LINE
        next unless bytes.include?("\n")

        *lines, rest = rest.split("\n", -1)
        lines.each { |line| yield parse(line) unless line.strip.empty? }
      end
      raise ConnectionError, "the answer was cut short" unless rest.empty?
    end

    private

    def parse(line)
      value = Wire.parse(line)
      raise ConnectionError, "a line of the answer is not a JSON object" unless value.is_a?(Hash)

      value
    rescue JSON::ParserError
      raise ConnectionError, "a line of the answer is not JSON"
    end
  end

  # The records of an export, read while they arrive. Each enumeration sends a request.
  #
  #   client.rides.export(status: "completed").each { |ride| puts ride.id }
  class Export
    include Enumerable

    # @api private
    def initialize(record, &send)
      @record = record
      @send = send
      freeze
    end

    # @yieldparam record [Record]
    # @return [self, Enumerator]
    # @raise [ConnectionError] if the stream was cut short, after the records that were whole
    def each
      return enum_for(:each) unless block_given?

      started = false
      @send.call(-> { !started }) do |_response, pieces|
        Lines.new(pieces).each do |value|
          started = true
          yield @record.new(value)
        end
      end
      self
    end

    # @return [String]
    def inspect = "#<#{self.class} of #{@record}>"
  end

  # Bytes of an answer, read while they arrive. Each enumeration sends a request.
  #
  #   File.open("tickets.csv", "wb") { |file| client.tickets.export_csv.copy_to(file) }
  class Download
    include Enumerable

    # @api private
    def initialize(&send)
      @send = send
      freeze
    end

    # @yieldparam bytes [String] a piece of any length
    # @return [self, Enumerator]
    # @raise [ConnectionError] if the stream was cut short
    def each
      return enum_for(:each) unless block_given?

      started = false
      @send.call(-> { !started }) do |_response, pieces|
        pieces.each do |piece|
          started = true
          yield piece
        end
      end
      self
    end

    # @return [String] all bytes
    def read = each.with_object(String.new) { |piece, bytes| bytes << piece.b }

    # @param io [IO, #write] opened for binary data
    # @return [Integer] the number of bytes
    def copy_to(io) = each.sum { |piece| io.write(piece) }

    # @return [String]
    def inspect = "#<#{self.class}>"
  end
end
