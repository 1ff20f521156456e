<?php

declare(strict_types=1);

// Loads the classes of this package where Composer is not used.
spl_autoload_register(static function (string $class): void {
    $namespaces = ['Kickstand\\Tests\\' => __DIR__ . '/tests/', 'Kickstand\\' => __DIR__ . '/src/'];
    foreach ($namespaces as $prefix => $folder) {
        if (str_starts_with($class, $prefix)) {
            $file = $folder . str_replace('\\', '/', substr($class, strlen($prefix))) . '.php';
            if (is_file($file)) {
                require $file;
            }
            return;
        }
    }
});
