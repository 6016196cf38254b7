#!/bin/sh
# Builds kube-apiserver, kube-scheduler and kube-controller-manager, and fetches etcd: `build.sh DIRECTORY` puts them into
# DIRECTORY/bin. All of it is of Debian 12, which has the whole source of Kubernetes, and no programs but the client. apt
# checks what it fetches against the signatures of Debian.
#
# Two gigabytes and six minutes of processor time; then the sources are removed. Ends with 77 and a line where it cannot be done.
set -eu
place=$(mkdir -p "$1" && cd "$1" && pwd)
version=1.20.5+really1.20.2-1.1
number=v1.20.2

cannot() {
  echo "the control plane of Kubernetes is not built: $1"
  exit 77
}

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || cannot "this is no Debian"
grep -q '^VERSION_CODENAME=bookworm' /etc/os-release || cannot "this is not Debian 12"

# The machine's own lists of packages name no sources, so there are lists of our own, from the same place.
mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial" "$place/packages"
apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | sort -u |
  sed -n 's|^\(.*\) \(bookworm\)$|deb \1 \2 main\ndeb-src \1 \2 main|p' >"$place/apt/sources.list"
apt="apt-get -qq -o Dir::Etc::SourceList=$place/apt/sources.list -o Dir::Etc::SourceParts=/dev/null"
apt="$apt -o Dir::State::Lists=$place/apt/lists -o Dir::Cache=$place/apt/cache -o APT::Sandbox::User="
cd "$place/packages"
$apt update || cannot "no registry of Debian's packages is reached"
$apt source --download-only kubernetes || cannot "Debian's source of Kubernetes cannot be had"
test -e "kubernetes_${version}"*.dsc || cannot "Debian has another version than $version"
$apt download golang-1.19-go golang-1.19-src etcd-server || cannot "Debian's compiler or etcd cannot be had"

rm -rf "$place/root" "$place/go" "$place/bin"
for package in *.deb; do dpkg-deb --extract "$package" "$place/root"; done
tree=$place/go/src/k8s.io/kubernetes
mkdir -p "$tree" "$place/bin" "$place/cache"
tar -xzf kubernetes_*.orig.tar.gz -C "$tree" --strip-components=1

export GOROOT="$place/root/usr/lib/go-1.19" GOPATH="$place/go" GOCACHE="$place/cache" HOME="$place"
export GO111MODULE=off GOPROXY=off GOTOOLCHAIN=local GOFLAGS=-p=1 CGO_ENABLED=0
go=$GOROOT/bin/go
cd "$tree"
# This version of reflect2 calls a function of the runtime that has another argument since Go 1.18, so that encoding a table as
# JSON writes to a random address.
reflection=vendor/github.com/modern-go/reflect2
sed -i -e 's|^func mapiterinit(.*|func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)|' \
  -e 's|^\t// rest fields are ignored$|\tpointers [6]unsafe.Pointer\n\tnumbers [4]uintptr|' $reflection/unsafe_link.go
sed -i 's|mapiterinit(type2.rtype, \(.*\)),$|begun(type2.rtype, \1),|' $reflection/unsafe_map.go
cat >>$reflection/unsafe_map.go <<'GO'

func begun(rtype unsafe.Pointer, m unsafe.Pointer) *hiter {
	it := new(hiter)
	mapiterinit(rtype, m, it)
	return it
}
GO

generated=pkg/generated/openapi/zz_generated.openapi.go
if ! test -e $generated; then
  $go build -o "$place/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg staging/src/k8s.io vendor/k8s.io/kube-openapi |
    grep -v -e _test.go -e sample- -e code-generator -e /cmd/ -e /testing -e /test/ | xargs -n 1 dirname | sort -u |
    sed -e 's|^staging/src/|k8s.io/kubernetes/vendor/|' -e 's|^pkg|k8s.io/kubernetes/pkg|' \
      -e 's|^vendor|k8s.io/kubernetes/vendor|' | paste -s -d ,)
  "$place/openapi-gen" --logtostderr --input-dirs "$packages" --output-base "$GOPATH/src" \
    --output-package k8s.io/kubernetes/pkg/generated/openapi --output-file-base zz_generated.openapi \
    --go-header-file hack/boilerplate/boilerplate.generatego.txt --report-filename "$place/violations"
fi
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/kubernetes/vendor/k8s.io/component-base/version; do
  flags="$flags -X $package.gitVersion=$number -X $package.gitMajor=1 -X $package.gitMinor=20"
done
for program in kube-apiserver kube-scheduler kube-controller-manager; do
  $go build -ldflags "$flags" -o "$place/bin/$program" ./cmd/$program
done
cp "$place/root/usr/bin/etcd" "$place/bin/etcd"
chmod -R u+w "$place/go" "$place/cache"
rm -rf "$place/go" "$place/cache" "$place/root" "$place/apt" "$place/packages" "$place/openapi-gen"
