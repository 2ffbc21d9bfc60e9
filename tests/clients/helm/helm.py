#!/usr/bin/env python3
"""The part of helm's command line that the tests use, by the library of helm itself, for machines without the program helm.

    helm.py template NAME CHART --namespace NAMESPACE [-f VALUES]
    helm.py lint CHART --namespace NAMESPACE [-f VALUES]
    helm.py package CHART --destination FOLDER
    helm.py install | upgrade NAME CHART --namespace NAMESPACE --kubeconfig FILE [-f VALUES] [--create-namespace]
    helm.py rollback NAME REVISION --namespace NAMESPACE --kubeconfig FILE
    helm.py uninstall NAME --namespace NAMESPACE --kubeconfig FILE
"""

import argparse
import sys

import helm_python as helm


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("verb", choices=["template", "lint", "package", "install", "upgrade", "rollback", "uninstall"])
    parser.add_argument("what", nargs="+")
    parser.add_argument("--namespace")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--destination")
    parser.add_argument("--create-namespace", action="store_true")
    parser.add_argument("-f", "--values")
    args = parser.parse_args()
    values = None
    if args.values:
        with open(args.values, encoding="utf-8") as file:
            values = helm.values_from_yaml(file.read())
    chart = args.what[-1]
    if args.verb == "lint":
        report = helm.lint(chart, values, strict=True, namespace=args.namespace)
        print("\n".join(message["error"] for message in report["messages"] if message["severity"] > 1))
        return len(report["errors"])
    if args.verb == "package":
        print(helm.package(chart, destination=args.destination))
        return 0
    if args.verb == "template":
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(values)
            rendered = loaded.render(values, name=args.what[0], namespace=args.namespace)
        for path, text in sorted(rendered.items()):
            if path.endswith(".yaml"):
                print(f"---\n# Source: {path}\n{text}")
        return 0
    with helm.Config(kubeconfig_path=args.kubeconfig, namespace=args.namespace) as config:
        if args.verb == "uninstall":
            config.uninstall(args.what[0])
        elif args.verb == "rollback":
            config.rollback(args.what[0], version=int(args.what[1]))
        elif args.verb == "install":
            config.install(chart, args.what[0], values, namespace=args.namespace, create_namespace=args.create_namespace)
        else:
            config.upgrade(chart, args.what[0], values, namespace=args.namespace)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except helm.HelmError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(1)
