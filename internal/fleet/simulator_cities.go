package fleet

import (
	"slices"

	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/tariff"
)

// cityTemplate describes a city of the simulator.
type cityTemplate struct {
	name, timeZone, currency, country string
	letter                            string // prefix of codes
	alert                             string
	phone                             string // format for the last two digits
	languages, first, last            []string
	goodwill                          int64

	types     []VehicleType
	plans     []Plan
	planTypes [][]int // indexes of types of each plan; the first plan is also the city's default
	kinds     string  // indexes of types of the vehicles, repeated
	fates     string  // of the vehicles, repeated
	zones     []zoneTemplate
	hotspots  []hotspot
	outside   hotspot // a place where rides may start but not end; zero: none
}

// zoneTemplate describes a zone of the simulator.
type zoneTemplate struct {
	name, description string
	kind              ZoneType
	only              int         // index of the only vehicle type of a custom zone
	ring              [][]float64 // not closed
}

func (s *zoneTemplate) area() geo.Area {
	a, err := geo.NewArea([][][][]float64{{append(slices.Clone(s.ring), s.ring[0])}})
	if err != nil {
		panic("fleet: the shape of " + s.name + " " + err.Error())
	}
	return a
}

// cityTemplates are the cities. Geometry is approximate; people and prices are
// fictional. Phone numbers are from the German range reserved for fiction or, in
// Japan, the usual placeholder.
var cityTemplates = [...]cityTemplate{
	{
		name: "Berlin", timeZone: "Europe/Berlin", currency: "EUR", country: "DE", letter: "B", phone: "+493023125%03d",
		alert:     "Road works at Warschauer Straße: please park north of the bridge",
		languages: []string{"de", "de", "en", "de", "tr"},
		first: []string{"Lena", "Jonas", "Mira", "Emre", "Hannah", "Paul", "Aylin", "Felix", "Nora", "David",
			"Clara", "Mats", "Selin", "Oskar", "Ida", "Timur", "Greta", "Anton", "Marie", "Karim"},
		last: []string{"Vogtmann", "Seidlitz", "Brandauer", "Yıldıran", "Kestner", "Lorenzen", "Demirsoy", "Hartwein", "Ostermann", "Rosental",
			"Wiesner", "Falkenau", "Aksoylu", "Bergholz", "Tannert", "Safarow", "Mühlberg", "Quandthof", "Sommerau", "Haddadin"},
		goodwill: 100,
		types: []VehicleType{
			{
				Name: "Scooter", FormFactor: "scooter_standing", PropulsionType: "electric", MaxRangeMeters: new(int64(45_000)),
				WheelCount: new(int64(2)), MaxPermittedSpeed: new(int64(20)), RiderCapacity: new(int64(1)), ReservationMinutes: 15, MinAge: 18,
			}, {
				Name: "E-bike", FormFactor: "bicycle", PropulsionType: "electric_assist", MaxRangeMeters: new(int64(70_000)),
				WheelCount: new(int64(2)), MaxPermittedSpeed: new(int64(25)), RiderCapacity: new(int64(1)), ReservationMinutes: 15, MinAge: 16,
			}, {
				Name: "Moped", FormFactor: "moped", PropulsionType: "electric", MaxRangeMeters: new(int64(90_000)),
				WheelCount: new(int64(2)), MaxPermittedSpeed: new(int64(45)), RiderCapacity: new(int64(2)), ReservationMinutes: 20, LicenseRequired: true, MinAge: 18,
			},
		},
		plans: []Plan{
			{
				Name: "Standard", Description: "1 EUR to unlock, 0.25 EUR a minute, 35 EUR a day at most",
				Tariff: tariff.Tariff{
					Currency: "EUR", UnlockAmount: 100, PerMinute: []tariff.Segment{{Rate: 25, Interval: 1}}, PerKilometer: []tariff.Segment{},
					ReservationPerMin: new(int64(15)), ReservationFreeMinutes: 5, FareCap: &tariff.FareCap{DurationMinutes: 1440, Amount: 3500},
					OutOfZoneAmount: new(int64(1500)),
				},
			}, {
				Name: "Moped", Description: "0.32 EUR a minute, 0.10 EUR while parked, 0.20 EUR a kilometre after the tenth",
				Tariff: tariff.Tariff{
					Currency: "EUR", PerMinute: []tariff.Segment{{Rate: 32, Interval: 1}}, PerKilometer: []tariff.Segment{{Start: 10, Rate: 20, Interval: 1}},
					PausePerMinAmount: new(int64(10)), ReservationFlat: new(int64(50)),
				},
			},
		},
		planTypes: [][]int{{0, 1}, {2}},
		kinds:     "00000000000000" + "11111111" + "2222",
		fates:     "aaaaaaartlnczx" + "aaaatpln" + "aaat",
		zones: []zoneTemplate{
			{name: "Berlin, inner city", kind: ServiceArea, ring: [][]float64{
				{13.300, 52.480}, {13.360, 52.468}, {13.440, 52.470}, {13.480, 52.495}, {13.478, 52.530},
				{13.440, 52.560}, {13.370, 52.562}, {13.310, 52.545}, {13.290, 52.510},
			}},
			{name: "Tiergarten", description: "The park is for walking", kind: NoRide, ring: [][]float64{
				{13.338, 52.511}, {13.372, 52.511}, {13.374, 52.518}, {13.345, 52.519},
			}},
			{name: "Museum Island", description: "No parking on the island", kind: NoParking, ring: [][]float64{
				{13.3935, 52.5170}, {13.4020, 52.5170}, {13.3980, 52.5215}, {13.3945, 52.5215},
			}},
			{name: "Alexanderplatz", kind: Slow, ring: [][]float64{
				{13.4085, 52.5200}, {13.4170, 52.5200}, {13.4170, 52.5240}, {13.4085, 52.5240},
			}},
			{name: "Hauptbahnhof, Washingtonplatz", kind: Parking, ring: [][]float64{
				{13.3660, 52.5235}, {13.3730, 52.5235}, {13.3730, 52.5270}, {13.3660, 52.5270},
			}},
		},
		hotspots: []hotspot{
			{52.5219, 13.4132}, // Alexanderplatz
			{52.5251, 13.3694}, // Hauptbahnhof
			{52.4991, 13.4183}, // Kottbusser Tor
			{52.5056, 13.4490}, // Warschauer Straße
			{52.5296, 13.4012}, // Rosenthaler Platz
			{52.5094, 13.3765}, // Potsdamer Platz
			{52.5072, 13.3325}, // Zoo
			{52.4995, 13.3537}, // Nollendorfplatz
			{52.4871, 13.4245}, // Hermannplatz
			{52.5414, 13.4121}, // Eberswalder Straße
			{52.5107, 13.4595}, // Boxhagener Platz
			{52.5487, 13.3885}, // Gesundbrunnen
		},
		outside: hotspot{52.5190, 13.3970}, // the museums
	}, {
		name: "Fukuoka", timeZone: "Asia/Tokyo", currency: "JPY", country: "JP", letter: "F", phone: "+8190123456%02d",
		languages: []string{"ja", "ja", "en", "ja"},
		first:     []string{"Haruka", "Sota", "Yui", "Ren", "Aoi", "Daiki", "Mei", "Takumi", "Sakura", "Riku"},
		last:      []string{"Hoshikawa", "Minazuki", "Tsubakino", "Kazehara", "Aomori", "Shirakawa", "Fujimine", "Kisaragi", "Hanabusa", "Yukishiro"},
		goodwill:  50,
		types: []VehicleType{
			{
				Name: "E-bike", FormFactor: "bicycle", PropulsionType: "electric_assist", MaxRangeMeters: new(int64(60_000)),
				WheelCount: new(int64(2)), MaxPermittedSpeed: new(int64(24)), RiderCapacity: new(int64(1)), ReservationMinutes: 15,
			}, {
				Name: "Bicycle", FormFactor: "bicycle", PropulsionType: "human",
				WheelCount: new(int64(2)), MaxPermittedSpeed: new(int64(18)), RiderCapacity: new(int64(1)),
			},
		},
		plans: []Plan{{
			Name: "Quarter hours", Description: "130 JPY for 30 minutes, then 100 JPY for each 15, 1800 JPY in 12 hours at most; tax comes on top",
			Tariff: tariff.Tariff{
				Currency: "JPY", UnlockAmount: 130, PerMinute: []tariff.Segment{{Start: 30, Rate: 100, Interval: 15}}, PerKilometer: []tariff.Segment{},
				FareCap: &tariff.FareCap{DurationMinutes: 720, Amount: 1800}, Taxable: true, TaxBasisPoints: 1000,
			},
		}},
		planTypes: [][]int{{0, 1}},
		kinds:     "000000000" + "11111",
		fates:     "aaaaarcxz" + "aaaan",
		zones: []zoneTemplate{
			{name: "Fukuoka, Tenjin and Hakata", kind: ServiceArea, ring: [][]float64{
				{130.370, 33.570}, {130.440, 33.570}, {130.445, 33.610}, {130.400, 33.618}, {130.368, 33.600},
			}},
			{name: "Ohori Park", kind: NoParking, ring: [][]float64{
				{130.3730, 33.5840}, {130.3790, 33.5840}, {130.3790, 33.5890}, {130.3730, 33.5890},
			}},
			{name: "Canal City", description: "The racks are for e-bikes", kind: CustomZone, ring: [][]float64{
				{130.4100, 33.5885}, {130.4125, 33.5885}, {130.4125, 33.5910}, {130.4100, 33.5910},
			}},
		},
		hotspots: []hotspot{
			{33.5898, 130.4207}, // Hakata station
			{33.5914, 130.3989}, // Tenjin
			{33.5935, 130.4060}, // Nakasu
			{33.5893, 130.3788}, // Ohori Park
			{33.5820, 130.4013}, // Yakuin
			{33.5975, 130.4110}, // Gofukumachi
			{33.5930, 130.4155}, // Gion
			{33.5841, 130.4040}, // Watanabe-dori
			{33.5889, 130.3905}, // Akasaka
			{33.6006, 130.4155}, // Chiyo
			{33.5898, 130.4112}, // Canal City
		},
	},
}
