#!/bin/sh
# Prints a title in the form that is used in a URL.
printf '%s\n' "$1" | tr ' ' '-'
