# frozen_string_literal: true

require_relative "errors"
require_relative "record"

module Kickstand
  # The result of one record of an import.
  class ImportLine < Record
    # @return [Integer] the position of the record, from 1
    member :line
    # @return [Integer] 201 created, 200 updated or unchanged, otherwise the status of the problem
    member :status
    # @return [String, nil] the id of the record
    member :id
    # @return [Array<String>, nil] members that were not applied
    member :ignored
    # @return [Problem, nil] the reason for which the record was refused
    member :problem, ->(value) { value.is_a?(Hash) ? Problem.new(value, status: value["status"]) : value }
  end

  # The numbers of an import.
  class ImportSummary < Record
    # @return [Integer]
    member :created
    # @return [Integer, nil]
    member :updated
    # @return [Integer, nil]
    member :unchanged
    # @return [Integer]
    member :failed
    # @return [Hash{String => Integer}, nil] the number of records by skipped read-only member
    member :skipped
  end

  # The result of an import.
  class ImportResult
    # @return [Array<ImportLine>]
    attr_reader :lines
    # @return [ImportSummary]
    attr_reader :summary

    def initialize(lines, summary)
      @lines = lines.freeze
      @summary = summary
      freeze
    end

    # @return [Array<ImportLine>] the lines of refused records
    def problems = lines.select(&:problem)

    # @return [Hash{Symbol => Object}]
    def to_h = { lines: lines.map(&:raw), summary: summary.raw }
  end
end
