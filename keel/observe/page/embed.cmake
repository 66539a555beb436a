# cmake -DNAMES=a;b -DFILES=x;y -DOUT=z.cc -P embed.cmake
# Writes the constants that page/assets.h declares: each file's bytes as a string_view.
file(WRITE ${OUT} "#include \"keel/observe/page/assets.h\"\n\nnamespace keel::page {\n")
foreach(name file IN ZIP_LISTS NAMES FILES)
  file(READ ${file} hex HEX)
  string(REPEAT "[0-9a-f]" 32 sixteen_bytes)
  string(REGEX REPLACE "(${sixteen_bytes})" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  file(APPEND ${OUT} "static constexpr char ${name}Bytes[] = {\n${bytes}};\n"
       "const std::string_view ${name}(${name}Bytes, sizeof ${name}Bytes);\n")
endforeach()
file(APPEND ${OUT} "}  // namespace keel::page\n")
