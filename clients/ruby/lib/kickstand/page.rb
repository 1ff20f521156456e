# frozen_string_literal: true

require_relative "errors"

module Kickstand
  # One page of a list. Its enumeration goes through this page and all following ones, which it
  # fetches when it reaches them:
  #
  #   client.tickets.list(status: "open").each { |ticket| puts ticket.subject }
  #   client.tickets.list(status: "open").first(10)
  #   client.tickets.list(status: "open").lazy.select { |ticket| ticket.assignee_id.nil? }.first
  class Page
    include Enumerable

    # @return [Array<Record>] the records of this page, frozen
    attr_reader :data
    # @return [String, nil] the argument +cursor+ of the next page
    attr_reader :next_cursor

    # @param raw [Hash{String => Object}]
    # @param record [Class] of the records
    # @param cursor [String, nil] of this page; the first page has none
    # @yieldparam cursor [String]
    # @yieldreturn [Page] the page of the cursor
    # @api private
    def initialize(raw, record, cursor = nil, &fetch)
      items = raw && raw["data"]
      raise Error, "the answer is not a list" unless items.is_a?(Array) && items.all?(Hash)

      @data = items.map { |item| record.new(item) }.freeze
      @next_cursor = raw["next_cursor"]
      @has_more = raw["has_more"] == true
      @cursor = cursor
      @fetch = fetch
      freeze
    end

    # @return [Boolean] whether there is a next page
    def has_more? = @has_more

    # @return [Page, nil] nil after the last page
    def next_page
      return unless has_more?
      raise Error, "the list has more records, but no new cursor" if [nil, "", @cursor].include?(next_cursor)

      @fetch.call(next_cursor)
    end

    # Goes through the records of this page and all following ones.
    # @yieldparam record [Record]
    # @return [self, Enumerator]
    def each(&block)
      return enum_for(:each) unless block

      each_page { |page| page.data.each(&block) }
      self
    end

    # Goes through this page and all following ones.
    # @yieldparam page [Page]
    # @return [self, Enumerator]
    def each_page
      return enum_for(:each_page) unless block_given?

      page = self
      while page
        yield page
        page = page.next_page
      end
      self
    end

    # @return [Hash{Symbol => Object}] this page only
    def to_h = { data: data.map(&:to_h), has_more: has_more?, next_cursor: }

    # @return [String]
    def inspect = "#<#{self.class} #{data.size} records, has_more=#{has_more?}>"
  end
end
