<?php // Knows neither Nudge nor signals.
header('Content-Type: text/plain');
echo getenv('GREETING'), "\n";
