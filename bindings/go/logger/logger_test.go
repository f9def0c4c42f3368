package logger

import (
	"bytes"
	"log"
	"log/slog"
	"testing"
)

func TestLinesAreFormattedAndBearTheirLevel(t *testing.T) {
	var text bytes.Buffer
	for _, write := range []struct {
		to   LoggerProvider
		want string
	}{
		{toLog{log.New(&text, "", 0)}, "VERBOSE - 1\nDEBUG - 1\nINFO - 1\nWARN - 1\nERROR - 1\n"},
		{NewSlog(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime}))), "level=INFO msg=1\nlevel=WARN msg=1\nlevel=ERROR msg=1\n"},
	} {
		text.Reset()
		write.to.Verbose("%d", 1)
		write.to.Debug("%d", 1)
		write.to.Info("%d", 1)
		write.to.Warn("%d", 1)
		write.to.Error("%d", 1)
		if text.String() != write.want {
			t.Errorf("wrote %q; expected %q", text.String(), write.want)
		}
	}
}

func withoutTime(_ []string, attribute slog.Attr) slog.Attr {
	if attribute.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return attribute
}
