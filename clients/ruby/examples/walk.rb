# frozen_string_literal: true

# Goes through docs/api/README.md and docs/api/fleet.md with this library, against the demo of
# KICKSTAND_URL with the keys KICKSTAND_KEY and KICKSTAND_FLEET_KEY (of the sandbox). It prints a line
# for each step, and fails at the first answer that differs.

require "kickstand"

$stdout.sync = true

def step(name)
  yield
  puts "ok #{name}"
end

def check(truth, message = "the answer differs")
  raise "#{caller(1, 1).first}: #{message}" unless truth
end

def problem(code)
  yield
  raise "no problem, but #{code} is expected"
rescue Kickstand::Problem => e
  check e.code == code, "the code is #{e.code}: #{e.message}"
  e
end

# The steps of docs/api/README.md.
class HelpdeskWalk
  def initialize
    @desk = Kickstand::Helpdesk.new
    @tag = "lock-#{Time.now.to_i}"
  end

  def run
    step("create a ticket") { create }
    step("errors") { errors }
    step("list tickets") { list }
    step("expand and export") { export }
    step("change a record") { change }
    step("ETag") { etag }
    step("repeat a request") { repeat }
    step("rate limit") { limits }
    step("reply") { reply }
  end

  private

  def create
    @ticket = @desk.tickets.create(subject: "The lock does not open", text: "It beeps twice.", tags: [@tag],
                                   customer: { name: "Ada", email: "ada@example.com" })
    check((@ticket in { object: "ticket", status: "open", priority: "normal", channel: "api", customer: { email: "ada@example.com" } }))
    check @ticket.created_at.is_a?(Time)
  end

  def errors
    id = nil
    request_options = { on_response: ->(response) { id = response.request_id } }
    e = problem(Kickstand::Codes::VALIDATION_FAILED) { @desk.tickets.create(subject: "", priority: "asap", request_options:) }
    check e.status == 422 && e.request_id == id && e.type.end_with?("/problems/validation_failed")
    check e.errors.map(&:pointer).sort == ["#/priority", "#/subject"]
  end

  def list
    page = @desk.tickets.list(tags: [@tag], status: %w[open pending], created_at_gte: Time.utc(2026), sort: "-updated_at", limit: 1)
    check page.data.map(&:id) == [@ticket.id] && !page.has_more? && page.next_cursor.nil?
    all = @desk.tickets.list(limit: 2).to_a
    check all.size > 3 && all.map(&:id).uniq.size == all.size && all == @desk.tickets.list.to_a
  end

  def export
    ticket = @desk.tickets.list(tags: [@tag], expand: ["customer"]).first
    check ticket.customer.id == ticket.customer_id
    check @desk.tickets.export(tags: [@tag]).map(&:id) == [@ticket.id]
    check @desk.tickets.export_csv(tags: [@tag]).read.lines[1].include?("The lock does not open,open,normal")
  end

  def change
    ticket = @desk.tickets.update(@ticket.id, priority: "high", metadata: { order: "1042" }, external_id: "own #{@tag}")
    check ticket.priority == "high" && ticket.metadata == { "order" => "1042" }
    ticket = @desk.tickets.update(@ticket.id, external_id: nil)
    check ticket.external_id.nil? && ticket.priority == "high"
    check @desk.tickets.modify(@ticket.id) { |current| { tags: current.tags | ["urgent"] } }.tags.sort == [@tag, "urgent"].sort
  end

  def etag
    problem(Kickstand::Codes::PRECONDITION_FAILED) do
      @desk.tickets.update(@ticket.id, priority: "low", request_options: { if_match: '"an older one"' })
    end
    etag = nil
    @desk.tickets.get(@ticket.id, request_options: { on_response: ->(response) { etag = response.etag } })
    check @desk.tickets.get(@ticket.id, request_options: { if_none_match: etag }).nil?
  end

  def repeat
    replayed = []
    options = { idempotency_key: "note-#{@tag}", on_response: ->(response) { replayed << response.replayed? } }
    notes = Array.new(2) { @desk.messages.create(@ticket.id, kind: "note", text: "A stone was in the lock.", request_options: options) }
    check notes.first == notes.last && replayed == [false, true]
    problem(Kickstand::Codes::IDEMPOTENCY_KEY_REUSED) do
      @desk.messages.create(@ticket.id, kind: "note", text: "Another.", request_options: options)
    end
  end

  def limits
    limit = nil
    key = @desk.api_key.get(request_options: { on_response: ->(response) { limit = response.rate_limit } })
    check limit.limit == key.rate_limit_per_minute && limit.remaining < limit.limit && limit.reset > Time.now
  end

  def reply
    file = Kickstand::Attachment.new("a receipt", name: "receipt.txt", content_type: "text/plain")
    reply = @desk.messages.create(@ticket.id, kind: "reply", text: "It is repaired.", attachments: [file])
    check((reply in { kind: "reply", text: "It is repaired.", delivery: nil }))
    check @desk.messages.get_attachment(reply.attachments.first.id).read == "a receipt"
    check @desk.messages.list(@ticket.id).map(&:id).include?(reply.id)
  end
end

# The steps of docs/api/fleet.md.
class FleetWalk
  def initialize
    @fleet = Kickstand::Fleet.new(key: ENV.fetch("KICKSTAND_FLEET_KEY"))
    @began = Time.now.utc
  end

  def run
    step("reset the sandbox") { check @fleet.sandbox.reset.nil? }
    step("vehicles") { vehicles }
    step("add a vehicle") { add }
    step("start a ride") { start }
    step("advance the clock") { advance(630) }
    step("end the ride") { finish }
    step("reservation") { reserve }
    step("revenue") { revenue }
    step("export rides") { rides }
    step("import zones") { zones }
    step("import vehicles") { import }
  end

  private

  def vehicles
    check @fleet.vehicles.list(state: "missing", sort: "code").map(&:code) == %w[B-0114 F-0108]
    nearest = @fleet.vehicles.list(lat: 52.52, lng: 13.41, radius_meters: 10_000, state: "available", limit: 1).data
    check nearest.size == 1 && nearest.first.state == Kickstand::VehicleState::AVAILABLE
  end

  def add
    like = @fleet.vehicles.list(code: "B-0101").first
    @city = like.subaccount_id
    @vehicle = @fleet.vehicles.create(subaccount_id: @city, code: "TRIAL-1", vehicle_type_id: like.vehicle_type_id, state: "available",
                                      battery_percent: 80, odometer_meters: 0, location: { lat: 52.5219, lng: 13.4132 })
    check((@vehicle in { code: "TRIAL-1", battery_percent: 80, location: { lat: 52.5219, lng: 13.4132 } }))
  end

  def start
    @rider = @fleet.customers.export(subaccount_id: @city, status: "active").find { |customer| customer.open_ride_id.nil? }
    @ride = @fleet.rides.create(customer_id: @rider.id, vehicle_code: "TRIAL-1",
                                request_options: { idempotency_key: "trial-#{@vehicle.id}" })
    check((@ride in { status: "active", trip_type: "rider", price: nil }))
    problem(Kickstand::Codes::VEHICLE_UNAVAILABLE) { @fleet.rides.create(customer_id: @rider.id, vehicle_code: "TRIAL-1") }
  end

  def advance(seconds)
    now = Time.at((@began + seconds).to_i)
    clock = @fleet.sandbox.update_clock(now:)
    check clock.now == now
  end

  def finish
    e = problem(Kickstand::Codes::OUT_OF_ZONE_FEE_REQUIRED) do
      @fleet.rides.update(@ride.id, status: "completed", end_location: { lat: 52.515, lng: 13.355 })
    end
    check e.members.to_s.include?("1500") && e.members.to_s.include?("EUR")
    ride = @fleet.rides.update(@ride.id, status: "completed", distance_meters: 1850, end_location: { lat: 52.5251, lng: 13.3694 })
    check((ride in { status: "completed", payment_status: "due", price: { currency: "EUR", total_amount: 375, billed_minutes: 11 } }))
  end

  def reserve
    ride = @fleet.rides.create(status: "reserved", customer_id: @rider.id, vehicle_code: "TRIAL-1")
    advance(4200)
    ride = @fleet.rides.get(ride.id)
    check((ride in { status: "cancelled", cancel_reason: "reservation_expired", price: { total_amount: 150 } }))
    check((@fleet.vehicles.list(code: "TRIAL-1").first in { state: "non_contactable", last_event: "comms_lost" }))
  end

  def revenue
    revenue = @fleet.analytics.revenue(from: @began, to: @began + 9000, granularity: "total")
    euro = revenue.totals.find { |total| total.currency == "EUR" }
    check((euro in { ride_count: 3, fare_amount: 375, reservation_amount: 300, total_amount: 675 }))
  end

  def rides
    rides = @fleet.rides.export(vehicle_id: @vehicle.id, sort: "created_at").map { |ride| [ride.status, ride.trip_type] }
    check rides == [%w[completed rider], %w[cancelled rider]]
  end

  def zones
    result = @fleet.zones.import_geojson(@fleet.zones.export_geojson.read, on_conflict: "update")
    check((result.summary in { created: 0, updated: 0, unchanged: 8, failed: 0 }))
    check @fleet.zones.import(@fleet.zones.export.to_a, on_conflict: "update").summary.unchanged == 8
  end

  def import
    lines = []
    records = [{ code: "TRIAL-2", vehicle_type_id: @vehicle.vehicle_type_id, subaccount_id: @city }, { code: "TRIAL-3" }]
    result = @fleet.vehicles.import(records) { |line| lines << line.status }
    check lines == [201, 422] && result.summary.created == 1 && result.problems.first.problem.code == "validation_failed"
  end
end

HelpdeskWalk.new.run
FleetWalk.new.run
