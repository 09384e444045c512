# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += fit/libhcpmodel.la
fit_libhcpmodel_la_SOURCES = fit/model.h fit/model-rows.h fit/model-internal.h fit/model.c fit/model-answer.c \
	fit/model-eval.c fit/model-causal.c fit/model-blend.c fit/model-scale.c
fit_libhcpmodel_la_LIBADD = $(LIBM)

noinst_LTLIBRARIES += fit/libhcpfit.la
fit_libhcpfit_la_SOURCES = fit/fit.h fit/fit-internal.h fit/fit.c fit/samples.c fit/grid.c fit/fill.c \
	fit/lut.c fit/poly.c fit/nnls.c fit/holdout.c fit/finish.c
fit_libhcpfit_la_CFLAGS = $(AM_CFLAGS) $(GSL_CFLAGS)
fit_libhcpfit_la_LIBADD = fit/libhcpmodel.la $(GSL_LIBS) $(LIBM)

# What 'hcp-plan fit' prints of decode; its tables and JSON are db/libhcpcli.la's.
noinst_LTLIBRARIES += fit/libhcpdecode.la
fit_libhcpdecode_la_SOURCES = fit/decode.h fit/decode-batch.c fit/decode-bandwidth.c
fit_libhcpdecode_la_CFLAGS = $(AM_CFLAGS) $(SMARTCOLS_CFLAGS) $(JANSSON_CFLAGS)
