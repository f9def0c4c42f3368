// Package experiment fetches variants from Amplitude Experiment. A fetch always comes back within the
// time you set, with the right status, and whatever happened to it never touches the next one.
//
//	client, err := experiment.NewClient("server-deployment-key", nil)
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer client.Close()
//	variants, err := client.FetchV2WithContext(&experiment.User{UserId: "user@company.com"}, ctx)
//
// It speaks the language of experiment-go-server, and is a binding of libexperiment, which it finds by
// pkg-config; see the README beside it.
package experiment
